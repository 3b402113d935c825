-- Identities with what they lead to: the row at their place, how many rows of its append follow in one piece,
-- and which append comes after. $1 p (NULL: all), after $2 tenant and $3 identity, $4 most
SELECT i.tenant, i.identity, i.p, i.seq, i.count, octet_length(i.digest) AS digest_bytes, f.id AS first_id,
    f.tenant AS first_tenant, f.append_id,
    (SELECT count(*) FROM outbox o WHERE o.p = i.p AND o.seq >= i.seq
        AND o.seq < i.seq + least(i.count, 100000) AND o.append_id = f.append_id AND o.tenant = i.tenant) AS rows,
    (SELECT o.append_id FROM outbox o WHERE o.p = i.p AND o.seq = i.seq + i.count) AS next_append_id
FROM append_identity i LEFT JOIN outbox f ON f.p = i.p AND f.seq = i.seq
WHERE (i.tenant, i.identity) > ($2, $3) AND ($1::int IS NULL OR i.p = $1)
ORDER BY i.tenant, i.identity LIMIT $4
