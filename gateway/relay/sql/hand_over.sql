-- Gives a locked subscription to whoever delivers it next. $1 id, $2 seq, $3 mark, $4 state, $5 why, $6 last confirmed
UPDATE subscription SET moves = moves + 1, seq = $2, mark = $3, state = $4, why = $5,
    confirmed_at = coalesce($6, confirmed_at), owner = NULL, lease_until = NULL
WHERE id = $1
