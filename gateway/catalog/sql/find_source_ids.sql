-- What a key is called elsewhere, in a fixed order. $1 tenant, $2 key.
SELECT source, scope, source_id FROM source_map
WHERE tenant = $1 AND key = $2
ORDER BY source COLLATE "C", scope COLLATE "C", source_id COLLATE "C"
