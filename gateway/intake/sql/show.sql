-- One delivery with its request, which may stand in another row. $1 tenant, $2 id.
SELECT d.id, d.source, d.delivery_id, d.item, d.verdict, d.reason, d.error, d.event_id, d.received_at,
       d.took_ms, d.secret, d.digest, r.target, r.headers, r.body
FROM webhook_delivery d
LEFT JOIN webhook_delivery r ON r.id = d.request
WHERE d.tenant = $1 AND d.id = $2
