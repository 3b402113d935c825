-- The events of one committed append. $1 p, $2 first seq, $3 last seq
SELECT id, aggregate_id, version FROM outbox WHERE p = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq
