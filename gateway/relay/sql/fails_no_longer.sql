-- Nothing that failed is left after a skip: what comes next has its own 5 days. $1 subscription
UPDATE subscription SET failing_since = NULL
WHERE id = $1 AND NOT EXISTS (SELECT FROM straggler WHERE subscription = $1 AND attempts > 0)
