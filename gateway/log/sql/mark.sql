-- Marks where these partitions stand, unless they were marked a moment ago. Nothing waits for a disk or a standby: a
-- mark that is lost costs time alone. $1 partitions, $2 events between two marks
INSERT INTO partition_mark (p, seq, chain)
SELECT l.p, l.seq, l.chain FROM partition_log l, set_config('synchronous_commit', 'off', true)
WHERE l.p = ANY($1::int[]) AND l.seq > 0
    AND NOT EXISTS (SELECT FROM partition_mark m WHERE m.p = l.p AND m.seq > l.seq - $2::bigint)
ON CONFLICT DO NOTHING
