-- What a replay made of a delivery. $1 tenant, $2 id, $3 verdict, $4 reason, $5 error, $6 event id.
UPDATE webhook_delivery SET verdict = $3, reason = $4, error = $5, event_id = coalesce($6, event_id)
WHERE tenant = $1 AND id = $2
