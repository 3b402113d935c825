-- One partition's row. $1 p
SELECT epoch, seq, chain, mode, owner FROM partition_log WHERE p = $1
