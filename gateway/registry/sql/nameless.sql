-- Which of these aggregates have no alias of a kind. $1 tenant, $2 kind, $3 aggregate types, $4 keys. Returns their
-- places n, from 1, in order. No NOT EXISTS: see holders.
SELECT w.n FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS w(aggregate_type, key, n)
WHERE (
    SELECT true FROM alias
    WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
        = $1::uuid::text || '/' || w.aggregate_type || '/' || w.key AND kind = $2
    LIMIT 1) IS NULL
ORDER BY w.n
