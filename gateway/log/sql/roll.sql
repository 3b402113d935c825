-- What the chain is made of, in order. $1 p, $2 after this seq
SELECT seq, version, append_id, digest FROM outbox WHERE p = $1 AND seq > $2 ORDER BY seq
