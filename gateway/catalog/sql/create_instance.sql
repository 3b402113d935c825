-- Who this instance is, once for ever. $1 id, $2 partition count, $3 partition rule.
INSERT INTO instance (id, partitions, partition_rule) VALUES ($1, $2, $3)
