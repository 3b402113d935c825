-- A scope that is seen for the first time, unless another is quicker. $1 tenant, $2 source, $3 scope.
INSERT INTO source_scope (tenant, source, scope, origin, incarnation)
SELECT $1, $2, $3, $3, coalesce(max(incarnation) + 1, 0)
FROM source_scope WHERE tenant = $1 AND source = $2 AND origin = $3
ON CONFLICT DO NOTHING
