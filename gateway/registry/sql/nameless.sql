-- Which of these aggregates have no alias of a kind. $1 tenant, $2 kind, $3 aggregate types, $4 keys. Returns their
-- places n, from 1, in order.
SELECT w.n FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS w(aggregate_type, key, n)
WHERE NOT EXISTS (
    SELECT FROM alias a
    WHERE a.tenant = $1 AND a.aggregate_type = w.aggregate_type AND a.aggregate_id = w.key AND a.kind = $2)
ORDER BY w.n
