-- Where a partition stands, and the mark of its last event; NULL when it has none. $1 p
SELECT head.seq, (SELECT substr(digest, 1, 4) FROM outbox o WHERE o.p = head.p AND o.seq = head.seq) AS mark
FROM partition_log head WHERE head.p = $1
