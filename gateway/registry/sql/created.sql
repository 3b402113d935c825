-- Aggregates of these types in the order of their first events, each with the kinds of the names that it has, in one
-- text; null where it has none. $1 tenant, $2 after this seq, $3 aggregate types, $4 most rows
SELECT o.seq, o.aggregate_type, o.aggregate_id, (
    SELECT string_agg(kind, ' ') FROM alias
    WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
        = o.tenant::text || '/' || o.aggregate_type || '/' || o.aggregate_id) AS kinds
FROM outbox o
WHERE o.tenant = $1 AND o.version = 1 AND o.seq > $2 AND o.aggregate_type = ANY($3::text[])
ORDER BY o.seq LIMIT $4
