-- The oldest hash id that a key has as an aggregate of one of these types. $1 tenant, $2 aggregate types, $3 key
SELECT a.kind, a.prefix, a.body, a.path, a.aggregate_type, a.aggregate_id, a.retired
FROM unnest($2::text[]) AS asked (aggregate_type) JOIN alias a
    ON (a.tenant::text || '/' || a.aggregate_type || '/' || a.aggregate_id) COLLATE "C"
        = $1::uuid::text || '/' || asked.aggregate_type || '/' || $3::text
WHERE a.kind = 'hash'
ORDER BY a.version, a.prefix, length(a.body), a.body, length(a.path), a.path
LIMIT 1
