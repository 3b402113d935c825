-- What a source id of a scope stands for. $1 scope's id, $2 source id.
SELECT key FROM source_key WHERE scope_id = $1 AND source_id = $2
