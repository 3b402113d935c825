-- What the chain of a partition is at some of its positions: at the end of each epoch, and every so often in
-- between. Whoever saw a partition committed up to an earlier position is checked from there to the next mark, and
-- not to the end. Only a short cut: what it says, the rows of `outbox` say too.
CREATE TABLE partition_mark (
    p     int NOT NULL,
    seq   bigint NOT NULL,
    chain text NOT NULL,
    PRIMARY KEY (p, seq)
);
INSERT INTO partition_mark (p, seq, chain) SELECT p, seq, chain FROM partition_log WHERE seq > 0;
