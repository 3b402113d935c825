-- What keys are derived from. $1 tenant, $2 source, $3 scope. No row: never seen.
SELECT id, origin, incarnation FROM source_scope WHERE tenant = $1 AND source = $2 AND scope = $3
