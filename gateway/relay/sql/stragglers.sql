-- The stragglers of a subscription. $1 subscription
SELECT aggregate_type, aggregate_id, version, event, state, attempts, due_at, since, error, claim, claimed_to
FROM straggler WHERE subscription = $1
