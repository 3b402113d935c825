-- Ends an epoch: nothing sequenced in it commits after this. With it goes the way that appends take in the next.
-- $1 p, $2 epoch, $3 who seals, $4 'redis' or 'direct', $5 an epoch that somebody has seen begin: the next one lies
-- beyond it too, where Postgres has lost the seal that began it. Returns the row as it then stands for ever in that
-- epoch, or nothing when another gateway was faster.
UPDATE partition_log SET epoch = greatest(epoch, $5) + 1, mode = $4, owner = $3 WHERE p = $1 AND epoch = $2
RETURNING epoch, seq, chain
