-- Keeps what somebody saw committed and Postgres does not have, once, until a person has decided; and halts the
-- partition for every gateway, unless it has gone on past that already: until then, going on would put an end to
-- what can still be repaired. $1 p, $2 who saw it, $3 epoch, $4 seq, $5 chain, $6 why
WITH halted AS (
    UPDATE partition_log SET alarm = $6
    WHERE p = $1 AND alarm IS NULL AND rewound <= $3 AND (seq < $4 OR epoch < $3)
)
INSERT INTO partition_trail (p, what, who, epoch, seq, chain, told)
SELECT $1, 'alarm', $2, $3, $4, $5, $6 FROM partition_log
WHERE p = $1 AND rewound <= $3 AND NOT EXISTS (
    SELECT FROM partition_trail t
    WHERE t.p = $1 AND (t.what, t.who, t.epoch, t.seq, t.chain) = ('alarm', $2, $3, $4, $5) AND t.id > coalesce(
        (SELECT max(d.id) FROM partition_trail d WHERE d.p = $1 AND d.what IN ('repair', 'rewind')), 0))
