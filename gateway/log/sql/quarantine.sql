-- Keeps an append that Postgres refused and ends the epoch, both or neither. Neither where the partition does not
-- stand right before the append any more: another gateway has ended the epoch, or has committed it after all.
-- $1 p, $2 epoch, $3 seq, $4 packed entry, $5 error
WITH sealed AS (
    UPDATE partition_log SET epoch = epoch + 1, owner = '' WHERE p = $1 AND epoch = $2 AND seq = $3 - 1 RETURNING p
)
INSERT INTO quarantined_append (p, epoch, seq, entry, error)
SELECT sealed.p, $2, $3, $4, $5 FROM sealed
RETURNING p
