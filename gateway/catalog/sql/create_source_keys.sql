-- Mappings, each unless there is one. $1 scope's id, $2 source ids, $3 their keys. Returns those that it made.
INSERT INTO source_key (scope_id, source_id, key)
SELECT $1, made.source_id, made.key FROM unnest($2::text[], $3::text[]) AS made (source_id, key)
ON CONFLICT DO NOTHING
RETURNING source_id, key
