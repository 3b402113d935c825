-- What was counted of partition $1: the events of its tenants, and how far.
SELECT coalesce((SELECT sum(events) FROM tenant_storage WHERE p = $1), 0)::bigint AS events,
    coalesce((SELECT seq FROM storage_mark WHERE p = $1), 0) AS seq
