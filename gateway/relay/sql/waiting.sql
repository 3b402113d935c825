-- Events that wait: stragglers by state, the parked ones or all. $1 subscription, $2 state or NULL, $3 at most
SELECT aggregate_type, aggregate_id, version, event, state, attempts, due_at, since, error FROM straggler
WHERE subscription = $1 AND ($2::text IS NULL OR state = $2) ORDER BY since, aggregate_type, aggregate_id LIMIT $3
