-- Where partitions stand, and which events stand at places in them, once all of that is as durable as a commit is
-- here: this changes nothing, but writes, and only what writes waits for a standby, which takes commits in order. It
-- locks nothing, so it waits for no commit that is under way. $1 partitions, $2 a seq in each, 0 for none.
WITH written AS MATERIALIZED (SELECT pg_logical_emit_message(true, 'sluice', 'settle') AS lsn)
SELECT head.epoch, head.seq, head.chain, head.mode, head.owner, head.rewound, head.alarm,
    (SELECT o.id FROM outbox o WHERE o.p = w.p AND o.seq = w.seq) AS id, written.lsn
FROM written CROSS JOIN unnest($1::int[], $2::bigint[]) WITH ORDINALITY AS w(p, seq, n)
    JOIN partition_log head ON head.p = w.p
ORDER BY w.n
