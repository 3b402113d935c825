-- Committed events of some tenants in a stretch of a partition, in the order of their commits. One snapshot, in
-- which all up to `head` is there: a commit moves the partition's row and inserts its events at once.
-- $1 p, $2 after this seq, $3 how many positions to look at, $4 tenants, $5 aggregate types or NULL for all
-- but the system's own, $6 event types or NULL for all, $7 most events, $8 bytes after which no further event is
-- begun, $9 whether all means the system's own too
-- Returns a row an event, or a single one without; in each of them where the partition stands (`head`) and the
-- marks at the start of the stretch (NULL: no such event) and at the last position of it (`reached`), with the id of
-- the event there.
SELECT bounds.*, e.*
FROM (
    -- Not to be merged into the rest: its look-ups are done once, not for each event.
    SELECT head.epoch, head.seq AS head, least(head.seq, $2::bigint + $3::bigint) AS reached,
        (SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1 AND seq = $2) AS mark_before,
        substr(last.digest, 1, 4) AS mark_reached, last.id AS id_reached
    FROM partition_log head LEFT JOIN outbox last
        ON last.p = head.p AND last.seq = least(head.seq, $2::bigint + $3::bigint)
    WHERE head.p = $1 OFFSET 0
) bounds LEFT JOIN LATERAL (
    SELECT seq, mark, version, id, tenant, aggregate_type, aggregate_id, type, actor_type, actor_id,
        target_type, target_id, correlation_id, causation_id, spec_rev, recorded_at_ms, extra, payload,
        size_so_far
    FROM (
        SELECT *, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS size_so_far FROM (
            SELECT seq, substr(digest, 1, 4) AS mark, version, id, tenant, aggregate_type, aggregate_id, type,
                actor_type, actor_id, target_type, target_id, correlation_id, causation_id, spec_rev,
                (extract(epoch FROM recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload,
                coalesce(octet_length(payload), 0) + coalesce(octet_length(extra), 0) AS size
            FROM outbox
            WHERE p = $1 AND seq > $2 AND seq <= $2::bigint + $3::bigint AND tenant = ANY($4::uuid[])
                AND CASE WHEN $5::text[] IS NULL THEN $9 OR left(aggregate_type, 1) <> '_'
                    ELSE aggregate_type = ANY($5) END
                AND ($6::text[] IS NULL OR type = ANY($6))
            ORDER BY seq LIMIT $7
        ) found
    ) sized WHERE size_so_far - size < $8
) e ON true
ORDER BY e.seq
