-- The aliases of an aggregate, oldest first. $1 tenant, $2 aggregate type, $3 key
SELECT kind, prefix, body, path, retired FROM alias
WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3
ORDER BY version, kind DESC, prefix, length(body), body, length(path), path
