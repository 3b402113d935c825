-- Who has these names already. $1 tenant, $2 prefixes, $3 bodies, $4 paths. Returns those that somebody has.
SELECT a.kind, a.prefix, a.body, a.path, a.aggregate_type, a.aggregate_id, a.retired
FROM unnest($2::text[], $3::text[], $4::text[]) AS n(prefix, body, path)
    JOIN alias a ON a.tenant = $1 AND a.path = n.path AND a.body = n.body AND a.prefix = n.prefix
