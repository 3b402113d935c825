-- The newest event of each stream that is a record of a source id, by how what it says beside its data begins: as
-- this release writes it ($4), or one that named no source id ($5). Of each stream, the newest $6 events are looked
-- at. $1 tenant, $2 aggregate type, $3 keys. No row for a stream without such an event.
SELECT wanted.n, newest.extra
FROM unnest($3::text[], $4::bytea[]) WITH ORDINALITY AS wanted (key, begins, n)
CROSS JOIN LATERAL (
    SELECT recent.extra FROM (
        SELECT o.extra, o.version FROM outbox o
        WHERE o.tenant = $1 AND o.aggregate_type = $2 AND o.aggregate_id = wanted.key
        ORDER BY o.version DESC LIMIT $6
    ) AS recent
    WHERE substr(recent.extra, 1, octet_length(wanted.begins)) = wanted.begins
        OR substr(recent.extra, 1, octet_length($5::bytea)) = $5
    ORDER BY recent.version DESC LIMIT 1
) AS newest
