-- Whose events are looked at for what follows from them later, up to where, and by which process.
CREATE TABLE reacting (
    tenant      uuid PRIMARY KEY REFERENCES tenant (id),
    p           int NOT NULL,
    seq         bigint NOT NULL DEFAULT 0,
    mark        bytea NOT NULL DEFAULT '\x00000000',
    owner       text,
    lease_until timestamptz
) WITH (fillfactor = 50);

-- Timers: an event to append when it is due, unless one that `cancel_on` names is committed behind `seq`. `id` is made of
-- the rule and the event that set it, so it is set once. `lease_until`: a process fires it.
CREATE TABLE schedule (
    id             uuid PRIMARY KEY,
    tenant         uuid NOT NULL REFERENCES tenant (id),
    trigger_id     uuid,
    trigger_type   text,
    trigger_key    text,
    trigger_event  text,
    seq            bigint NOT NULL,
    mark           bytea NOT NULL,
    due_at         timestamptz NOT NULL,
    emit           bytea NOT NULL,
    cancel_on      bytea NOT NULL,
    correlation_id uuid NOT NULL,
    state          text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'fired', 'cancelled', 'parked')),
    reason         text,
    fired_event    uuid,
    attempts       int NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT now(),
    ended_at       timestamptz,
    lease_until    timestamptz
);
CREATE INDEX schedule_due ON schedule (due_at) WHERE state = 'pending';
CREATE INDEX schedule_of ON schedule (tenant, due_at, id);
CREATE INDEX schedule_parked ON schedule (tenant) WHERE state = 'parked';
