-- The aliases of an aggregate, oldest first. $1 tenant, $2 aggregate type, $3 key
SELECT kind, prefix, body, path, retired FROM alias
WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
    = $1::uuid::text || '/' || $2::text || '/' || $3::text
ORDER BY version, kind DESC, prefix, length(body), body, length(path), path
