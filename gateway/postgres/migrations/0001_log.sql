-- The truth: who the instance is, the order of each partition, and every event once.

CREATE TABLE instance (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    id             uuid NOT NULL,
    partitions     int NOT NULL CHECK (partitions BETWEEN 1 AND 1024),
    partition_rule text NOT NULL
);

-- One row a partition, compare-and-swapped by every commit. Half of each page is left free and the table
-- is vacuumed early, so that the swap stays a heap-only update on a page in memory.
CREATE TABLE partition_log (
    p     int PRIMARY KEY,
    epoch bigint NOT NULL,
    seq   bigint NOT NULL,
    chain text NOT NULL,
    mode  text NOT NULL CHECK (mode IN ('redis', 'direct')),
    owner text NOT NULL DEFAULT ''
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outbox (
    seq            bigint NOT NULL,
    version        bigint NOT NULL,
    recorded_at    timestamptz(3) NOT NULL,
    id             uuid NOT NULL,
    tenant         uuid NOT NULL,
    correlation_id uuid NOT NULL,
    causation_id   uuid,
    p              int NOT NULL,
    spec_rev       int NOT NULL,
    append_id      bytea NOT NULL,
    digest         bytea NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id   text NOT NULL,
    type           text NOT NULL,
    actor_type     text NOT NULL,
    actor_id       text NOT NULL,
    target_type    text,
    target_id      text,
    extra          bytea,
    payload        bytea,
    PRIMARY KEY (id, tenant),
    UNIQUE (p, seq),
    UNIQUE (tenant, aggregate_type, aggregate_id, version)
);
-- A payload is small and read whole: compressing it costs more than it saves.
ALTER TABLE outbox ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE append_identity (
    tenant   uuid NOT NULL,
    identity bytea NOT NULL,
    p        int NOT NULL,
    seq      bigint NOT NULL,
    count    int NOT NULL,
    digest   bytea NOT NULL,
    PRIMARY KEY (tenant, identity)
);

-- Appends that Postgres refused for a reason that only a bug can bring; kept whole for a person to look at.
CREATE TABLE quarantined_append (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    p           int NOT NULL,
    epoch       bigint NOT NULL,
    seq         bigint NOT NULL,
    entry       bytea NOT NULL,
    error       text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
);
