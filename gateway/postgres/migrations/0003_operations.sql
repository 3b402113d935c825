-- What becomes of a partition when Postgres has lost commits: who noticed, and what a person decided.

-- `rewound`: the epoch that the last rewind began. What anybody saw committed in an earlier epoch counts no
-- more. `alarm`: why nobody may append to the partition until a person has decided; usually NULL.
ALTER TABLE partition_log
    ADD COLUMN rewound bigint NOT NULL DEFAULT 0,
    ADD COLUMN alarm text;

-- Only grows. Of an alarm, (epoch, seq, chain) is what somebody saw committed and Postgres did not have; of a
-- repair or a rewind, where the partition stood after it. A partial repair left something missing.
CREATE TABLE partition_trail (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    p     int NOT NULL,
    what  text NOT NULL CHECK (what IN ('alarm', 'partial repair', 'repair', 'rewind')),
    who   text NOT NULL,
    epoch bigint NOT NULL,
    seq   bigint NOT NULL,
    chain text NOT NULL,
    told  text NOT NULL
);
CREATE INDEX partition_trail_p ON partition_trail (p, id);
