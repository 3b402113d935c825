-- Pauses, or goes on; whoever delivers now finds out at its next move. $1 id, $2 state
UPDATE subscription SET state = $2, why = NULL, failing_since = NULL, moves = moves + 1, owner = NULL,
    lease_until = NULL
WHERE id = $1
