-- Who this instance is.
SELECT id, partitions, partition_rule FROM instance
