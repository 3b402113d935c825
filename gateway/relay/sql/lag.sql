-- What each of these subscriptions has left to do, and the recording time of the oldest of it. What its target has not
-- confirmed lies ahead of the cursor, or behind it with an aggregate that is tried again or handed out; of each part at
-- most $2 are counted. What is parked, and behind it in its aggregate, waits for a person and is not among them.
-- $1 ids, $2 most counted, $3 how many of the partition's events ahead of a cursor are looked at
SELECT s.id, s.kind, least(ahead.events + behind.events, $2) AS lag_events,
    least(ahead.oldest, behind.oldest) AS oldest, clock_timestamp() AS now
FROM subscription s
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
        SELECT o.recorded_at FROM (
            SELECT * FROM straggler w
            WHERE w.subscription = s.id AND w.state <> 'parked'
                AND CASE WHEN s.types IS NULL THEN left(w.aggregate_type, 1) <> '_'
                    ELSE w.aggregate_type = ANY(s.types) END
            ORDER BY w.since LIMIT $2
        ) w CROSS JOIN LATERAL (
            SELECT recorded_at FROM outbox
            WHERE tenant = s.tenant AND aggregate_type = w.aggregate_type AND aggregate_id = w.aggregate_id
                AND version >= w.version AND p = s.p AND seq <= s.seq
                AND (s.event_types IS NULL OR type = ANY(s.event_types))
            ORDER BY version LIMIT $2
        ) o
        LIMIT $2
    ) found
) behind
WHERE s.id = ANY($1::bigint[])
