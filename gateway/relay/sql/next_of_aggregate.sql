-- The next event of an aggregate that a subscription wants. $1 tenant, $2 aggregate type, $3 id, $4 from this
-- version, $5 event types or NULL, $6 p, $7 up to this seq, $8 at most
SELECT seq, substr(digest, 1, 4) AS mark, version, id, type, actor_type, actor_id, target_type, target_id,
    correlation_id, causation_id, spec_rev, (extract(epoch FROM recorded_at) * 1000)::int8 AS recorded_at_ms,
    extra, payload
FROM outbox
WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND version >= $4 AND p = $6 AND seq <= $7
    AND ($5::text[] IS NULL OR type = ANY($5))
ORDER BY version LIMIT $8
