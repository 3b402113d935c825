-- Every partition's epoch, mode and position, and whether it is halted, for the watch.
SELECT p, epoch, mode, seq, chain, alarm, rewound FROM partition_log ORDER BY p
