-- Deliveries of a tenant that are in quarantine, newest first. $1 tenant, $2 source or NULL, $3 delivery id or NULL,
-- $4 id before which to go on, $5 how many.
SELECT id, source, delivery_id, item, verdict, reason, error, event_id, received_at, took_ms, secret
FROM webhook_delivery
WHERE tenant = $1 AND verdict = 'quarantined' AND id < $4
  AND ($2::text IS NULL OR source = $2) AND ($3::text IS NULL OR delivery_id = $3)
ORDER BY id DESC
LIMIT $5
