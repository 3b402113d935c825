-- What a hash id may be short for: the root from its start, the path exactly. $1 tenant, $2 prefix or null for
-- any, $3 beginning of the body, $4 just after all bodies that begin so, $5 path, $6 aggregate type or null for
-- any, $7 most rows. Sorted as they are shown.
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1 AND path = $5 AND body >= $3 AND body < $4 AND kind = 'hash'
    AND ($2::text IS NULL OR prefix = $2) AND ($6::text IS NULL OR aggregate_type = $6)
ORDER BY prefix, body LIMIT $7
