-- All that a batch of appends in direct mode is judged on, in one snapshot: where the partition stands, who
-- claimed these identities and event ids, how long these streams are, and what the chain is made of since a seq.
-- $1 p, $2 tenants and $3 identities, $4 tenants and $5 event ids, $6 tenants, $7 aggregate types and $8 keys,
-- $9 that seq, $10 most rows of it
-- Returns the partition's row first; of a stream, `version` is its place in the arrays and `seq` its length.
SELECT 'partition' AS kind, NULL::uuid AS tenant, NULL::bytea AS identity, NULL::uuid AS id,
    p, seq, epoch::int8 AS epoch, 0 AS count, NULL::bytea AS digest, 0::int8 AS version, mode, chain, alarm,
    NULL::bytea AS append_id
FROM partition_log WHERE p = $1
UNION ALL
SELECT 'identity', i.tenant, i.identity, NULL, i.p, i.seq, 0, i.count, i.digest, 0, NULL, NULL, NULL, NULL
FROM unnest($2::uuid[], $3::bytea[]) AS w(tenant, identity)
    JOIN append_identity i ON i.tenant = w.tenant AND i.identity = w.identity
UNION ALL
SELECT 'event', o.tenant, NULL, o.id, o.p, o.seq, 0, 0, NULL, o.version, NULL, NULL, NULL, NULL
FROM unnest($4::uuid[], $5::uuid[]) AS w(tenant, id) JOIN outbox o ON o.id = w.id AND o.tenant = w.tenant
UNION ALL
SELECT 'head', NULL, NULL, NULL, $1, coalesce((
    SELECT o.version FROM outbox o
    WHERE o.tenant = w.tenant AND o.aggregate_type = w.aggregate_type AND o.aggregate_id = w.key
    ORDER BY o.version DESC LIMIT 1), 0), 0, 0, NULL, w.n, NULL, NULL, NULL, NULL
FROM unnest($6::uuid[], $7::text[], $8::text[]) WITH ORDINALITY AS w(tenant, aggregate_type, key, n)
UNION ALL
(SELECT 'since', NULL, NULL, NULL, p, seq, 0, 0, digest, version, NULL, NULL, NULL, append_id
FROM outbox WHERE p = $1 AND seq > $9 ORDER BY seq LIMIT $10)
