-- Aggregates of these types in the order of their first events. $1 tenant, $2 after this seq, $3 aggregate types,
-- $4 most rows
SELECT seq, aggregate_type, aggregate_id FROM outbox
WHERE tenant = $1 AND version = 1 AND seq > $2 AND aggregate_type = ANY($3::text[])
ORDER BY seq LIMIT $4
