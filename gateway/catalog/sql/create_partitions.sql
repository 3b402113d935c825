-- Every partition at its beginning: epoch 1, nothing committed. $1 partition count.
INSERT INTO partition_log (p, epoch, seq, chain, mode)
SELECT p, 1, 0, '', 'redis' FROM generate_series(0, $1::int - 1) AS p
