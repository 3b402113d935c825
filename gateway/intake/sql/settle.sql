-- What a replay made of a delivery. Its body comes into the row: another event may hold another shape of it.
-- $1 tenant, $2 id, $3 verdict, $4 reason, $5 error, $6 event id.
UPDATE webhook_delivery d
SET verdict = $3, reason = $4, error = $5, event_id = coalesce($6, d.event_id), body_bytes = NULL,
    body = coalesce(d.body, (
        SELECT substr(o.payload, 9, d.body_bytes) FROM outbox o WHERE o.id = d.event_id AND o.tenant = d.tenant
    ))
WHERE d.tenant = $1 AND d.id = $2
