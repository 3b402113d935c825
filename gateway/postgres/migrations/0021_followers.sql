-- Whose events somebody keeps in step with: a tenant's followers are folded together, by whoever holds the lease.
-- `revision`: of the spec whose followers are in the table below. `changes` counts what a person or a deployment
-- changes there, so that the holder reads it again.
CREATE TABLE followed (
    tenant      uuid PRIMARY KEY REFERENCES tenant (id),
    revision    int NOT NULL DEFAULT 0,
    changes     bigint NOT NULL DEFAULT 0,
    owner       text,
    lease_until timestamptz
) WITH (fillfactor = 50);

-- A build of a list or a projection: one definition, folded from the first event on. All of the tenant's events up to
-- `seq` are in its rows; both are moved in one transaction, by whoever has seen `moves`. `digest` is of all that rows
-- depend on, as revision `spec_rev` of the spec declares it. `served_seq`: where it stood when it began to serve.
CREATE TABLE follower (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant       uuid NOT NULL REFERENCES tenant (id),
    kind         text NOT NULL CHECK (kind IN ('list', 'projection')),
    name         text NOT NULL,
    spec_rev     int NOT NULL,
    digest       bytea NOT NULL,
    fields       text[] NOT NULL,
    state        text NOT NULL DEFAULT 'building' CHECK (state IN ('building', 'serving', 'off', 'dropped')),
    paused       boolean NOT NULL DEFAULT false,
    p            int NOT NULL,
    seq          bigint NOT NULL DEFAULT 0,
    mark         bytea NOT NULL DEFAULT '\x00000000',
    moves        bigint NOT NULL DEFAULT 0,
    rows         bigint NOT NULL DEFAULT 0,
    misfits      bigint NOT NULL DEFAULT 0,
    last_misfits bytea NOT NULL DEFAULT '[]',
    rate         double precision NOT NULL DEFAULT 0,
    served_seq   bigint,
    created_at   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
CREATE INDEX follower_of ON follower (tenant, kind, name);
CREATE UNIQUE INDEX follower_serving ON follower (tenant, kind, name) WHERE state = 'serving';
CREATE INDEX follower_dropped ON follower (id) WHERE state = 'dropped';

-- The rows. `seq` and `mark` are those of the last event that changed it; without `data`, that event deleted it. `f1` to
-- `f8` are the fields of `by` in an order of bytes (gateway/follow/sort_values.py), so that no table is made at a
-- deployment; a follower has as many as it names.
CREATE TABLE follower_row (
    follower      bigint NOT NULL,
    seq           bigint NOT NULL,
    length        bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    mark          bytea NOT NULL,
    tenant        uuid NOT NULL,
    key           text COLLATE "C" NOT NULL,
    data          bytea,
    f1 bytea, f2 bytea, f3 bytea, f4 bytea, f5 bytea, f6 bytea, f7 bytea, f8 bytea,
    PRIMARY KEY (follower, key)
) WITH (fillfactor = 80);
CREATE INDEX follower_row_seq ON follower_row (follower, seq, key);
CREATE INDEX follower_row_f1 ON follower_row (follower, f1, key) WHERE f1 IS NOT NULL;
CREATE INDEX follower_row_f2 ON follower_row (follower, f2, key) WHERE f2 IS NOT NULL;
CREATE INDEX follower_row_f3 ON follower_row (follower, f3, key) WHERE f3 IS NOT NULL;
CREATE INDEX follower_row_f4 ON follower_row (follower, f4, key) WHERE f4 IS NOT NULL;
CREATE INDEX follower_row_f5 ON follower_row (follower, f5, key) WHERE f5 IS NOT NULL;
CREATE INDEX follower_row_f6 ON follower_row (follower, f6, key) WHERE f6 IS NOT NULL;
CREATE INDEX follower_row_f7 ON follower_row (follower, f7, key) WHERE f7 IS NOT NULL;
CREATE INDEX follower_row_f8 ON follower_row (follower, f8, key) WHERE f8 IS NOT NULL;

-- Of a join: which aggregates' states a row was put together from.
CREATE TABLE follower_source (
    follower       bigint NOT NULL,
    tenant         uuid NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id   text NOT NULL,
    key            text COLLATE "C" NOT NULL,
    PRIMARY KEY (follower, aggregate_type, aggregate_id, key)
);
CREATE INDEX follower_source_of ON follower_source (follower, key);
