-- For keys of which no number was given before. $1 tenant, $2 keys of public ids, $3 the greatest number given of each
INSERT INTO alias_counter (tenant, prefix, greatest)
SELECT $1, n.prefix, n.number FROM unnest($2::text[], $3::bigint[]) AS n(prefix, number)
