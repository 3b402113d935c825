-- Every subscription with what is left to do; of one tenant if asked. What lies behind the cursor is counted to $2.
-- $1 tenant or NULL, $2 most counted
SELECT s.tenant, t.name AS tenant_name, s.name, s.kind, s.state, s.why, s.failing_since, s.confirmed_at, s.owner,
    s.lease_until > clock_timestamp() AS leased, s.declared, ahead.events AS lag_events, ahead.oldest, clock_timestamp() AS now,
    waiting.retrying, waiting.claimed, waiting.parked, waiting.since AS waiting_since
FROM subscription s JOIN tenant t ON t.id = s.tenant
CROSS JOIN LATERAL (
    SELECT count(*) AS events, min(recorded_at) AS oldest FROM (
        SELECT recorded_at FROM outbox o
        WHERE o.p = s.p AND o.seq > s.seq AND o.tenant = s.tenant
            AND (s.types IS NULL OR o.aggregate_type = ANY(s.types))
            AND (s.event_types IS NULL OR o.type = ANY(s.event_types))
        ORDER BY o.seq LIMIT $2
    ) found
) ahead
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state = 'retrying') AS retrying, count(*) FILTER (WHERE state = 'claimed') AS claimed,
        count(*) FILTER (WHERE state = 'parked') AS parked, min(since) FILTER (WHERE state <> 'parked') AS since
    FROM straggler WHERE subscription = s.id
) waiting
WHERE $1::uuid IS NULL OR s.tenant = $1
ORDER BY t.name, s.name
