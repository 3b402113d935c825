-- Who claimed these identities and event ids for ever, with the partition's epoch and seq of the same
-- snapshot. $1 p, $2 tenants and $3 identities, 32 bytes each, one after another; $4 tenants and $5 event ids
SELECT 'partition' AS kind, NULL::uuid AS tenant, NULL::bytea AS identity, NULL::uuid AS id,
    p, seq, epoch::int8 AS epoch, 0 AS count, NULL::bytea AS digest, 0::int8 AS version
FROM partition_log WHERE p = $1
UNION ALL
SELECT 'identity', i.tenant, i.identity, NULL, i.p, i.seq, 0, i.count, i.digest, 0
FROM unnest($2::text::uuid[]) WITH ORDINALITY AS w(tenant, n)
    JOIN append_identity i ON i.tenant = w.tenant AND i.identity = substr($3::bytea, 32 * w.n::int - 31, 32)
UNION ALL
SELECT 'event', o.tenant, NULL, o.id, o.p, o.seq, 0, 0, NULL, o.version
FROM unnest($4::text::uuid[], $5::text::uuid[]) AS w(tenant, id) JOIN outbox o ON o.id = w.id AND o.tenant = w.tenant
