-- The committed length of a stream, where its last event stands, and some of its events, oldest first; newest first
-- with each ASC a DESC (postgres.py). One row at least; nulls but for the length where there is nothing.
-- $1 tenant, $2 aggregate type, $3 key, $4 first version, $5 last version, $6 most events, $7 bytes after which no
-- further event is begun
SELECT coalesce(head.version, 0) AS head, head.seq AS head_seq, head.id AS head_id, page.*
FROM (SELECT 1) AS one
LEFT JOIN (
    SELECT o.version, o.seq, o.id FROM outbox o
    WHERE o.tenant = $1 AND o.aggregate_type = $2 AND o.aggregate_id = $3
    ORDER BY o.version DESC LIMIT 1
) AS head ON true
LEFT JOIN (
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
) AS page ON true
ORDER BY page.version ASC
