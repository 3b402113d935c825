-- Raises counters, never lowers one. $1 tenant, $2 keys of public ids, $3 the greatest number given of each.
-- Returns how they stand.
UPDATE alias_counter c SET greatest = greatest(c.greatest, n.number)
FROM unnest($2::text[], $3::bigint[]) AS n(prefix, number)
WHERE c.tenant = $1 AND c.prefix = n.prefix
RETURNING c.prefix, c.greatest
