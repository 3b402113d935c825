-- Deliveries of a tenant, newest first, from one page of its rows. $1 tenant, $2 source or NULL, $3 verdict or NULL,
-- $4 delivery id or NULL, $5 id before which to go on, $6 how many, $7 the first id of the page.
SELECT id, source, delivery_id, item, verdict, reason, error, event_id, received_at, took_ms, secret
FROM webhook_delivery
WHERE tenant = $1
  AND ($2::text IS NULL OR source = $2)
  AND CASE WHEN $3::text IS NULL THEN verdict <> 'batch' ELSE verdict = $3 END
  AND ($4::text IS NULL OR delivery_id = $4)
  AND id < $5 AND id >= $7
ORDER BY id DESC
LIMIT $6
