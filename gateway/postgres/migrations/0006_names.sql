-- Names that people say. All of it but the stream of events is a projection: it follows from the outbox, and
-- `sluice names rebuild` makes it anew.

-- An alias as it is composed when it is shown: prefix, dash, body, path (`bd`, `k86gaq`, `.1`; a public id has
-- digits for a body and no path). Never changed but for `retired`, never deleted. In the order of the bytes,
-- so that what begins with an abbreviation stands together. `version` is the event that gave it.
CREATE TABLE alias (
    tenant         uuid NOT NULL,
    path           text COLLATE "C" NOT NULL,
    body           text COLLATE "C" NOT NULL,
    prefix         text COLLATE "C" NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('public', 'hash')),
    aggregate_type text NOT NULL,
    aggregate_id   text NOT NULL,
    retired        boolean NOT NULL DEFAULT false,
    version        bigint NOT NULL,
    PRIMARY KEY (tenant, path, body, prefix)
);
CREATE INDEX alias_aggregate ON alias (tenant, aggregate_type, aggregate_id);

-- The greatest number of each key of public ids; it never goes back.
CREATE TABLE alias_counter (
    tenant   uuid NOT NULL,
    prefix   text COLLATE "C" NOT NULL,
    greatest bigint NOT NULL,
    PRIMARY KEY (tenant, prefix)
) WITH (fillfactor = 50);

-- How many events of the tenant's stream of names are in these tables.
CREATE TABLE alias_position (
    tenant  uuid PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50);

-- Up to which seq every aggregate has the names that `declared` (of this revision of the spec) wants for it.
CREATE TABLE alias_scan (
    tenant   uuid PRIMARY KEY,
    seq      bigint NOT NULL,
    declared text NOT NULL,
    spec_rev int NOT NULL
) WITH (fillfactor = 50);

-- Where the aggregates of a tenant begin.
CREATE INDEX outbox_created ON outbox (tenant, seq) WHERE version = 1;
