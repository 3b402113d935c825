-- A key, unless its handle is taken. $1 handle, $2 tenant, $3 name, $4 scope, $5 digest, $6 lifetime or null,
-- $7 the key it replaces or null, $8 the clock's revision. Returns when it expires, or no row.
INSERT INTO api_key (handle, tenant, name, scope, digest, expires_at, rotated_from, changed)
VALUES ($1, $2, $3, $4, $5, now() + $6::interval, $7, $8)
ON CONFLICT (handle) DO NOTHING
RETURNING expires_at
