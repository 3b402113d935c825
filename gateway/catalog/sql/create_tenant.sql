-- A tenant, unless its handle is taken. $1 id, $2 name, $3 handle. Returns true, or no row.
INSERT INTO tenant (id, name, handle) VALUES ($1, $2, $3)
ON CONFLICT (handle) DO NOTHING
RETURNING true
