-- $1 tenant, $2 prefixes, $3 bodies, $4 paths, $5 whether they are retired from now on
UPDATE alias a SET retired = $5
FROM unnest($2::text[], $3::text[], $4::text[]) AS n(prefix, body, path)
WHERE a.tenant = $1 AND a.path = n.path AND a.body = n.body AND a.prefix = n.prefix
