-- Aggregates that came by an import: the external ref of each, if it has one, and what its last record says (a hash).
-- `times`: records that said something else than the one before. `appended`: the last one's event is known to be.
-- `imports`: the newest imports that a statement of which it is.
CREATE TABLE imported (
    tenant         uuid NOT NULL,
    aggregate_type text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    ref            text COLLATE "C",
    content        bytea NOT NULL,
    times          int NOT NULL,
    appended       boolean NOT NULL,
    imports        uuid[] NOT NULL,
    PRIMARY KEY (tenant, aggregate_type, key),
    UNIQUE (tenant, aggregate_type, ref)
) WITH (fillfactor = 70);
CREATE INDEX imported_content ON imported (tenant, aggregate_type, content);
