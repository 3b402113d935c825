-- The first mark at or after a position. $1 p, $2 from this seq, $3 to this seq
SELECT seq, chain FROM partition_mark WHERE p = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq LIMIT 1
