-- Ends an epoch: nothing sequenced in it commits after this. With it goes the way that appends take in the next.
-- Where it ended is marked.
-- $1 p, $2 epoch, $3 who seals, $4 'redis' or 'direct', $5 an epoch that somebody has seen begin: the next one lies
-- beyond it too, where Postgres has lost the seal that began it. Returns the row as it then stands for ever in that
-- epoch, or nothing when another gateway was faster.
WITH sealed AS (
    UPDATE partition_log SET epoch = greatest(epoch, $5) + 1, mode = $4, owner = $3 WHERE p = $1 AND epoch = $2
    RETURNING p, epoch, seq, chain, rewound
), marked AS (
    INSERT INTO partition_mark (p, seq, chain) SELECT p, seq, chain FROM sealed WHERE seq > 0 ON CONFLICT DO NOTHING
)
SELECT epoch, seq, chain, rewound FROM sealed
