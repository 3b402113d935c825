-- Sagas as their streams say they stand, and what those that run wait for. `seq`: of their newest event. `due_at`: when a
-- step has waited too long.
CREATE TABLE saga (
    id             uuid PRIMARY KEY,
    tenant         uuid NOT NULL REFERENCES tenant (id),
    name           text NOT NULL,
    state          text NOT NULL,
    length         int NOT NULL,
    seq            bigint NOT NULL,
    data           bytea NOT NULL,
    waits_type     text,
    waits_key      text,
    waits_events   text[] NOT NULL DEFAULT '{}',
    correlation_id uuid NOT NULL,
    due_at         timestamptz,
    started_at     timestamptz NOT NULL DEFAULT now(),
    changed_at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);
CREATE INDEX saga_of ON saga (tenant, state, changed_at, id);
CREATE INDEX saga_waits ON saga (tenant, waits_type, waits_key) WHERE waits_type IS NOT NULL;
CREATE INDEX saga_waits_by_correlation ON saga (tenant, correlation_id) WHERE waits_type IS NOT NULL;
CREATE INDEX saga_due ON saga (tenant, due_at) WHERE due_at IS NOT NULL;
