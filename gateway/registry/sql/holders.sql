-- Who has these names already. $1 tenant, $2 prefixes, $3 bodies, $4 paths. Returns those that somebody has.
-- LIMIT makes it one look-up for each name: of a tenant that the statistics do not know yet, the planner would rather
-- compare each name with all of its rows (so too in public_ids_of, retire).
SELECT a.kind, a.prefix, a.body, a.path, a.aggregate_type, a.aggregate_id, a.retired
FROM unnest($2::text[], $3::text[], $4::text[]) AS n(prefix, body, path) CROSS JOIN LATERAL (
    SELECT * FROM alias
    WHERE tenant = $1 AND path = n.path AND body = n.body AND prefix = n.prefix LIMIT 1) a
