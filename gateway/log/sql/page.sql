-- Committed events of a stream, oldest first; newest first with each ASC a DESC (postgres.py).
-- $1 tenant, $2 aggregate type, $3 key, $4 first version, $5 last version, $6 most events, $7 bytes after which no
-- further event is begun
SELECT seq, version, id, type, actor_type, actor_id, target_type, target_id, correlation_id, causation_id,
    spec_rev, (extract(epoch FROM recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload
FROM (
    SELECT *, sum(size) OVER (ORDER BY version ASC ROWS UNBOUNDED PRECEDING) AS size_so_far FROM (
        SELECT *, coalesce(octet_length(payload), 0) + coalesce(octet_length(extra), 0) AS size FROM outbox
        WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND version BETWEEN $4 AND $5
        ORDER BY version ASC LIMIT $6
    ) found
) sized
WHERE size_so_far - size < $7
ORDER BY version ASC
