-- Applies events that give names. Never ON CONFLICT: that a name is free was decided before its event was written; a
-- violation is a bug and must be loud. Raises the counters, never lowers one. $1 tenant, $2 version of the first event,
-- $3 of the last: all between them give names. Returns the keys of public ids that have no counter yet, and the greatest
-- number given of each.
WITH given AS (
    INSERT INTO alias (tenant, version, kind, prefix, body, path, aggregate_type, aggregate_id)
    SELECT o.tenant, o.version, n.name->>0, n.name->>1, n.name->>2, n.name->>3, n.name->>4, n.name->>5
    FROM outbox o CROSS JOIN LATERAL jsonb_array_elements(convert_from(o.payload, 'UTF8')::jsonb->'names') AS n(name)
    WHERE o.tenant = $1 AND o.aggregate_type = '_names' AND o.aggregate_id = 'global' AND o.version BETWEEN $2 AND $3
    RETURNING kind, prefix, body
), numbered AS (
    SELECT prefix, max(body::bigint) AS number FROM given WHERE kind = 'public' GROUP BY prefix
), raised AS (
    UPDATE alias_counter c SET greatest = greatest(c.greatest, n.number) FROM numbered n
    WHERE c.tenant = $1 AND c.prefix = n.prefix
    RETURNING c.prefix
)
SELECT prefix, number FROM numbered WHERE prefix NOT IN (SELECT prefix FROM raised)
