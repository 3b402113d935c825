-- A tenant's streams and the versions in them, in order. $1 tenant, after $2 aggregate type, $3 key, $4 version,
-- $5 most rows
SELECT aggregate_type, aggregate_id, version, p, seq FROM outbox
WHERE tenant = $1 AND (aggregate_type, aggregate_id, version) > ($2, $3, $4)
ORDER BY aggregate_type, aggregate_id, version LIMIT $5
