-- $1 tenant, $2 prefixes, $3 bodies, $4 paths, $5 whether they are retired from now on. By ctid, which stays: nobody
-- else changes names while the position is locked. Why LIMIT: see holders.
UPDATE alias a SET retired = $5
FROM unnest($2::text[], $3::text[], $4::text[]) AS n(prefix, body, path) CROSS JOIN LATERAL (
    SELECT ctid FROM alias
    WHERE tenant = $1 AND path = n.path AND body = n.body AND prefix = n.prefix LIMIT 1) it
WHERE a.ctid = it.ctid
