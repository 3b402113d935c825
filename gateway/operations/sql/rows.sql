-- Whole rows of a partition, in order. $1 p, $2 after this seq, $3 to this seq, $4 most rows
SELECT seq, version, id, tenant, type, actor_type, actor_id, target_type, target_id, correlation_id, causation_id,
    spec_rev, append_id, digest, aggregate_type, aggregate_id,
    (extract(epoch FROM recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload
FROM outbox WHERE p = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4
