-- Public names in the order in which people count, each with the oldest hash id of its aggregate, null where that
-- has none. $1 tenant
SELECT p.prefix, p.body, p.aggregate_type, p.aggregate_id, h.prefix AS hash_prefix, h.body AS hash_body,
    h.path AS hash_path
FROM alias p LEFT JOIN LATERAL (
    SELECT prefix, body, path FROM alias
    WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
        = p.tenant::text || '/' || p.aggregate_type || '/' || p.aggregate_id AND kind = 'hash'
    ORDER BY version, length(path), path, length(body), body LIMIT 1) h ON true
WHERE p.tenant = $1 AND p.kind = 'public'
ORDER BY p.prefix, length(p.body), p.body
