-- Events of a subscription were acked just now. $1 id
UPDATE subscription SET confirmed_at = now(), moves = moves + 1 WHERE id = $1
