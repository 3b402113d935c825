-- What an exact alias names. $1 tenant, $2 kind, $3 prefix or null for any, $4 body, $5 path, $6 aggregate type or
-- null for any. More than one row only where the prefix was left out.
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1 AND path = $5 AND body = $4 AND kind = $2
    AND ($3::text IS NULL OR prefix = $3) AND ($6::text IS NULL OR aggregate_type = $6)
ORDER BY prefix
