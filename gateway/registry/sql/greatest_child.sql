-- The greatest number among the names beside one: those that differ from it in the last number alone. $1 tenant,
-- $2 prefix, $3 body, $4 what their paths begin with, up to the last point and with it
SELECT coalesce(max(substr(path, length($4) + 1)::numeric), 0) FROM alias
WHERE tenant = $1 AND body = $3 AND prefix = $2 AND path ^@ $4 AND position('.' IN substr(path, length($4) + 1)) = 0
