-- Where this database was when a relay last delivered from it: one that was copied or restored is elsewhere, and
-- sends nothing until `sluice adopt` says that it may.

CREATE TABLE instance_home (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    system_id    bigint NOT NULL,
    database_oid bigint NOT NULL,
    timeline     bigint NOT NULL,
    adopted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    adopted_by   text
);
