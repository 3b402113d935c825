-- The key of a source id. $1 tenant, $2 source, $3 scope, $4 source id. No row: never seen.
SELECT key FROM source_map WHERE tenant = $1 AND source = $2 AND scope = $3 AND source_id = $4
