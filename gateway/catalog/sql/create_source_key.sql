-- A mapping, unless there is one. $1 scope's id, $2 source id, $3 key. Returns true, or no row.
INSERT INTO source_key (scope_id, source_id, key) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING
RETURNING true
