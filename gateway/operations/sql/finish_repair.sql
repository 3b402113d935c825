-- What a repair did, for ever; the partition goes on in the epoch that the lost commits led to. The alarm ends
-- when nothing is missing any more. $1 p, $2 epoch, $3 seq at least, $4 epoch to go on in, $5 'repair' or
-- 'partial repair', $6 who, $7 what it did. Returns a row, or nothing when the partition stands elsewhere.
WITH mended AS (
    UPDATE partition_log SET epoch = $4, alarm = CASE $5 WHEN 'repair' THEN NULL ELSE alarm END
    WHERE p = $1 AND epoch = $2 AND seq >= $3
    RETURNING p, epoch, seq, chain
)
INSERT INTO partition_trail (p, what, who, epoch, seq, chain, told)
SELECT p, $5, $6, epoch, seq, chain, $7 FROM mended RETURNING id
