-- Every subscription with what is left to do; of one tenant if asked. What its target has not confirmed lies ahead of
-- the cursor, or behind it with an aggregate that is tried again or handed out; of each part at most $2 are counted.
-- What is parked, and behind it in its aggregate, waits for a person and is not among them.
-- $1 tenant or NULL, $2 most counted, $3 how many of the partition's events ahead of a cursor are looked at
SELECT s.tenant, t.name AS tenant_name, s.name, s.kind, s.state, s.why, s.failing_since, s.confirmed_at, s.owner,
    s.lease_until > clock_timestamp() AS leased, s.declared, least(ahead.events + behind.events, $2) AS lag_events,
    least(ahead.oldest, behind.oldest) AS oldest, clock_timestamp() AS now,
    waiting.retrying, waiting.claimed, waiting.parked
FROM subscription s JOIN tenant t ON t.id = s.tenant
CROSS JOIN LATERAL (
    SELECT count(*) AS events, min(recorded_at) AS oldest FROM (
        SELECT recorded_at FROM outbox o
        WHERE o.p = s.p AND o.seq > s.seq AND o.seq <= s.seq + $3 AND o.tenant = s.tenant
            AND CASE WHEN s.types IS NULL THEN left(o.aggregate_type, 1) <> '_'
                ELSE o.aggregate_type = ANY(s.types) END
            AND (s.event_types IS NULL OR o.type = ANY(s.event_types))
        ORDER BY o.seq LIMIT $2
    ) found
) ahead
CROSS JOIN LATERAL (
    SELECT count(*) AS events, min(recorded_at) AS oldest FROM (
        SELECT o.recorded_at FROM straggler w CROSS JOIN LATERAL (
            SELECT recorded_at FROM outbox
            WHERE tenant = s.tenant AND aggregate_type = w.aggregate_type AND aggregate_id = w.aggregate_id
                AND version >= w.version AND p = s.p AND seq <= s.seq
                AND (s.event_types IS NULL OR type = ANY(s.event_types))
            ORDER BY version LIMIT $2
        ) o
        WHERE w.subscription = s.id AND w.state <> 'parked'
            AND CASE WHEN s.types IS NULL THEN left(w.aggregate_type, 1) <> '_'
                ELSE w.aggregate_type = ANY(s.types) END
        ORDER BY w.since LIMIT $2
    ) found
) behind
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state = 'retrying') AS retrying, count(*) FILTER (WHERE state = 'claimed') AS claimed,
        count(*) FILTER (WHERE state = 'parked') AS parked
    FROM straggler WHERE subscription = s.id
) waiting
WHERE $1::uuid IS NULL OR s.tenant = $1
ORDER BY t.name, s.name
