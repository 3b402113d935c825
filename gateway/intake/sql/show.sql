-- One delivery with its request, which may stand in another row, and whose body may stand in the event: behind
-- `{"body":`, as normalize.py writes it. $1 tenant, $2 id.
SELECT d.id, d.source, d.delivery_id, d.item, d.verdict, d.reason, d.error, d.event_id, d.received_at,
       d.took_ms, d.secret, d.digest, r.target, r.headers,
       coalesce(r.body, substr(o.payload, 9, r.body_bytes)) AS body
FROM webhook_delivery d
LEFT JOIN webhook_delivery r ON r.id = d.request
LEFT JOIN outbox o ON o.id = r.event_id AND o.tenant = r.tenant AND r.body_bytes IS NOT NULL
WHERE d.tenant = $1 AND d.id = $2
