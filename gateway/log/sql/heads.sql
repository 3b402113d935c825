-- The committed length of streams. $1 tenants, $2 aggregate types, $3 keys; a row for each, in order
SELECT coalesce((
    SELECT o.version FROM outbox o
    WHERE o.tenant = w.tenant AND o.aggregate_type = w.aggregate_type AND o.aggregate_id = w.key
    ORDER BY o.version DESC LIMIT 1), 0) AS head
FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS w(tenant, aggregate_type, key, n)
ORDER BY w.n
