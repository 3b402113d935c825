-- What the chain is made of, in order. $1 p, $2 after this seq, $3 to this seq, $4 most rows
SELECT seq, version, append_id, digest FROM outbox WHERE p = $1 AND seq > $2 AND seq <= $3
ORDER BY seq LIMIT $4
