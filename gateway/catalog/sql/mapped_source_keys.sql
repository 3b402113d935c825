-- What source ids of a scope stand for. $1 scope's id, $2 source ids.
SELECT source_id, key FROM source_key WHERE scope_id = $1 AND source_id = ANY ($2::text[])
