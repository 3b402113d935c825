-- Parked events are tried again at once, with their whole schedule. $1 subscription, $2 event or NULL for all
UPDATE straggler SET state = 'retrying', attempts = 0, due_at = now(), since = now()
WHERE subscription = $1 AND state = 'parked' AND ($2::uuid IS NULL OR event = $2)
