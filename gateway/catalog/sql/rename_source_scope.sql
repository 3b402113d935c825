-- Another name for a scope. $1 tenant, $2 source, $3 scope, $4 its new name. Returns true, or no row.
UPDATE source_scope SET scope = $4 WHERE tenant = $1 AND source = $2 AND scope = $3
RETURNING true
