-- The public ids of these aggregates. $1 tenant, $2 aggregate types, $3 keys
SELECT a.aggregate_type, a.aggregate_id, a.prefix, a.body
FROM unnest($2::text[], $3::text[]) AS w(aggregate_type, key)
    JOIN alias a ON a.tenant = $1 AND a.aggregate_type = w.aggregate_type AND a.aggregate_id = w.key
WHERE a.kind = 'public'
