-- Aliases of a tenant in the order in which people count, a page at a time. $1 tenant, $2 prefix, length of the
-- body, body, length of the path and path after which the page begins ($2…$6), $7 most rows
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1 AND (prefix, length(body), body, length(path), path) > ($2, $3, $4, $5, $6)
ORDER BY prefix, length(body), body, length(path), path LIMIT $7
