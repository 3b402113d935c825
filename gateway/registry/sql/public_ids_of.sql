-- The public ids of these aggregates. $1 tenant, $2 aggregate types, $3 keys. OFFSET is as LIMIT: see holders.
SELECT w.aggregate_type, w.key AS aggregate_id, a.prefix, a.body
FROM unnest($2::text[], $3::text[]) AS w(aggregate_type, key) CROSS JOIN LATERAL (
    SELECT prefix, body FROM alias
    WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
        = $1::uuid::text || '/' || w.aggregate_type || '/' || w.key AND kind = 'public' OFFSET 0) a
