-- Aliases of a tenant in the order in which people count. $1 tenant, $2 aggregate type, NULL for all
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1 AND ($2::text IS NULL OR aggregate_type = $2)
ORDER BY prefix, length(body), body, length(path), path
