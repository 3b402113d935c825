-- Where a partition stands, and the id and the mark of its last event; NULL when it has none. $1 p
SELECT head.epoch, head.seq, last.id, substr(last.digest, 1, 4) AS mark
FROM partition_log head LEFT JOIN outbox last ON last.p = head.p AND last.seq = head.seq WHERE head.p = $1
