-- Never ON CONFLICT: that a name is free was decided before its event was written; a violation is a bug and must be
-- loud. $1 tenant, $2 version of the event, then a column an array: kind, prefix, body, path, aggregate type, key
INSERT INTO alias (tenant, version, kind, prefix, body, path, aggregate_type, aggregate_id)
SELECT $1, $2, n.kind, n.prefix, n.body, n.path, n.aggregate_type, n.key
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    AS n(kind, prefix, body, path, aggregate_type, key)
