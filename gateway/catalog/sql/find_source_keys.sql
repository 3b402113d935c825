-- The keys of source ids of one scope. $1 tenant, $2 source, $3 scope, $4 source ids. No row for one never seen.
SELECT source_id, key FROM source_map WHERE tenant = $1 AND source = $2 AND scope = $3 AND source_id = ANY ($4::text[])
