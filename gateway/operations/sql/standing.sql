-- Where a partition stands, and the greatest seq there is, of one moment. $1 p
SELECT l.epoch, l.seq, l.chain, l.mode, l.owner, l.rewound, l.alarm,
    coalesce((SELECT max(o.seq) FROM outbox o WHERE o.p = l.p), 0) AS last_seq
FROM partition_log l WHERE l.p = $1
