-- $1 tenant, $2 keys of public ids
INSERT INTO alias_counter (tenant, prefix, greatest)
SELECT $1, unnest($2::text[]), 0 ON CONFLICT (tenant, prefix) DO NOTHING
