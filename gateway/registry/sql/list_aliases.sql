-- Aliases of a tenant in the order in which people count. $1 tenant
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1
ORDER BY prefix, length(body), body, length(path), path
