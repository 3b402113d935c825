-- One partition's row. $1 p
SELECT epoch, seq, chain, mode, owner, rewound, alarm FROM partition_log WHERE p = $1
