-- Gives up what Postgres has lost: begins an epoch in which nothing that anybody saw before counts any more.
-- $1 p, $2 epoch, $3 seq at least, $4 the new epoch, $5 who, $6 what is given up, $7 the last alarm that was
-- weighed. Returns where the partition stands then, or nothing when it stands elsewhere, or another alarm came.
WITH begun AS (
    UPDATE partition_log SET epoch = $4, rewound = $4, alarm = NULL, owner = $5
    WHERE p = $1 AND epoch = $2 AND seq >= $3 AND rewound < $4
        AND NOT EXISTS (SELECT FROM partition_trail t WHERE t.p = $1 AND t.what = 'alarm' AND t.id > $7)
    RETURNING p, epoch, seq, chain
), kept AS (
    INSERT INTO partition_trail (p, what, who, epoch, seq, chain, told)
    SELECT p, 'rewind', $5, epoch, seq, chain, $6 FROM begun
)
SELECT epoch, seq, chain FROM begun
