-- The newest attempts of a subscription, of one event if asked. $1 subscription, $2 event or NULL, $3 at most
SELECT event, attempt, at, took_ms, outcome, status, error, response FROM delivery_attempt
WHERE subscription = $1 AND ($2::uuid IS NULL OR event = $2) ORDER BY id DESC LIMIT $3
