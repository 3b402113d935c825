-- Whoever delivers is overtaken, and starts anew at once. $1 subscription
UPDATE subscription SET moves = moves + 1, owner = NULL, lease_until = NULL WHERE id = $1
