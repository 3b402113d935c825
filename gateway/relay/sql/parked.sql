-- A parked event, locked. $1 subscription, $2 event
SELECT aggregate_type, aggregate_id, version FROM straggler
WHERE subscription = $1 AND event = $2 AND state = 'parked' FOR UPDATE
