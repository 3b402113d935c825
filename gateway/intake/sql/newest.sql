-- What the newest events of streams say beside their data. $1 tenant, $2 aggregate type, $3 keys. No row for a
-- stream that was never written.
SELECT wanted.key, newest.extra
FROM unnest($3::text[]) AS wanted (key)
CROSS JOIN LATERAL (
    SELECT o.extra FROM outbox o
    WHERE o.tenant = $1 AND o.aggregate_type = $2 AND o.aggregate_id = wanted.key
    ORDER BY o.version DESC LIMIT 1
) AS newest
