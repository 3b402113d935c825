-- Moves the cursor of a subscription whose row is locked. $1 id, $2 seq, $3 mark
UPDATE subscription SET seq = $2, mark = $3, moves = moves + 1 WHERE id = $1
