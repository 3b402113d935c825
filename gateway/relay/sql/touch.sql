-- Whoever delivers finds out, hands over, and starts anew. $1 subscription
UPDATE subscription SET moves = moves + 1 WHERE id = $1
