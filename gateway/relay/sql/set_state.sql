-- Pauses, or goes on; whoever delivers now finds out, and hands over. $1 id, $2 state
UPDATE subscription SET state = $2, why = NULL, failing_since = NULL, moves = moves + 1 WHERE id = $1
