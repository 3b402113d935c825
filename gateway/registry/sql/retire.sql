-- Applies an event that retires or restores names. $1 tenant, $2 version of the event, $3 whether they are retired from
-- now on. By ctid, which stays: nobody else changes names while the position is locked. Why LIMIT: see holders.
UPDATE alias a SET retired = $3
FROM outbox o
    CROSS JOIN LATERAL jsonb_array_elements(convert_from(o.payload, 'UTF8')::jsonb->'names') AS n(name)
    CROSS JOIN LATERAL (
        SELECT ctid FROM alias
        WHERE tenant = $1 AND path = n.name->>3 AND body = n.name->>2 AND prefix = n.name->>1 LIMIT 1) it
WHERE o.tenant = $1 AND o.aggregate_type = '_names' AND o.aggregate_id = 'global' AND o.version = $2
    AND a.ctid = it.ctid
