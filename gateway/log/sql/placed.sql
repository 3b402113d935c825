-- What stands at a range of positions. $1 p, $2 first seq, $3 last seq
SELECT seq, version, digest FROM outbox WHERE p = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq
