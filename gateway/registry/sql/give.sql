-- Applies an event that gives names. Never ON CONFLICT: that a name is free was decided before its event was written; a
-- violation is a bug and must be loud. $1 tenant, $2 version of the event. Returns the greatest number of each key of
-- public ids in it.
WITH given AS (
    INSERT INTO alias (tenant, version, kind, prefix, body, path, aggregate_type, aggregate_id)
    SELECT o.tenant, o.version, n.name->>0, n.name->>1, n.name->>2, n.name->>3, n.name->>4, n.name->>5
    FROM outbox o CROSS JOIN LATERAL jsonb_array_elements(convert_from(o.payload, 'UTF8')::jsonb->'names') AS n(name)
    WHERE o.tenant = $1 AND o.aggregate_type = '_names' AND o.aggregate_id = 'global' AND o.version = $2
    RETURNING kind, prefix, body
)
SELECT prefix, max(body::bigint) AS greatest FROM given WHERE kind = 'public' GROUP BY prefix
