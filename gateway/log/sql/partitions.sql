-- Every partition's epoch, mode and position, for the watch.
SELECT p, epoch, mode, seq, chain FROM partition_log ORDER BY p
