-- What a repair did, for ever; the partition goes on in the epoch that the lost commits led to. Its alarm ends
-- when nothing is missing any more; but another one may have come meanwhile. $1 p, $2 epoch, $3 seq at least,
-- $4 epoch to go on in, $5 'repair' or 'partial repair', $6 who, $7 what it did, $8 the last alarm that it knew.
-- Returns what it was, or nothing when the partition stands elsewhere.
WITH did AS (
    SELECT CASE WHEN EXISTS (SELECT FROM partition_trail t WHERE t.p = $1 AND t.what = 'alarm' AND t.id > $8)
        THEN 'partial repair' ELSE $5 END AS what
), mended AS (
    UPDATE partition_log SET epoch = $4,
        alarm = CASE (SELECT what FROM did) WHEN 'repair' THEN NULL ELSE alarm END
    WHERE p = $1 AND epoch = $2 AND seq >= $3
    RETURNING p, epoch, seq, chain
)
INSERT INTO partition_trail (p, what, who, epoch, seq, chain, told)
SELECT p, (SELECT what FROM did), $6, epoch, seq, chain, $7 FROM mended RETURNING what
