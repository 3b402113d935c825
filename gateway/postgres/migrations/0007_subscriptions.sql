-- What goes out: subscriptions, how far each has come, and what is in its way.

-- (p, seq, mark) is the cursor: all of the subscription's events up to there are confirmed, but for those of
-- the stragglers. `moves` counts every change of the row: whoever moves a cursor names the count it has seen,
-- so of two relays one moves it. `document` is as it was sent, secrets included; NULL
-- in a filter is any.
CREATE TABLE subscription (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant        uuid NOT NULL REFERENCES tenant (id),
    name          text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('webhook', 'redis_stream', 'pull')),
    declared      boolean NOT NULL,
    document      bytea NOT NULL,
    types         text[],
    event_types   text[],
    p             int NOT NULL,
    seq           bigint NOT NULL,
    mark          bytea NOT NULL,
    moves         bigint NOT NULL DEFAULT 0,
    state         text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
    why           text,
    failing_since timestamptz,
    confirmed_at  timestamptz,
    owner         text,
    lease_until   timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant, name)
) WITH (fillfactor = 50);

-- An aggregate that waits while the cursor goes on: from `version` on, its events are delivered one after the
-- other by its own schedule. 'claimed': handed out to whoever pulls, up to `claimed_to`, until `due_at`.
CREATE TABLE straggler (
    subscription   bigint NOT NULL REFERENCES subscription (id) ON DELETE CASCADE,
    aggregate_type text NOT NULL,
    aggregate_id   text NOT NULL,
    version        bigint NOT NULL,
    event          uuid NOT NULL,
    state          text NOT NULL CHECK (state IN ('retrying', 'parked', 'claimed')),
    attempts       int NOT NULL,
    due_at         timestamptz NOT NULL,
    since          timestamptz NOT NULL,
    error          text,
    claim          uuid,
    claimed_to     bigint,
    PRIMARY KEY (subscription, aggregate_type, aggregate_id)
);
CREATE INDEX straggler_due ON straggler (subscription, due_at);
CREATE INDEX straggler_claim ON straggler (subscription, claim) WHERE claim IS NOT NULL;

-- What was tried, and what was answered; kept for some days.
CREATE TABLE delivery_attempt (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription bigint NOT NULL REFERENCES subscription (id) ON DELETE CASCADE,
    event        uuid NOT NULL,
    attempt      int NOT NULL,
    at           timestamptz NOT NULL,
    took_ms      int NOT NULL,
    outcome      text NOT NULL,
    status       int,
    error        text,
    response     bytea NOT NULL
);
CREATE INDEX delivery_attempt_of ON delivery_attempt (subscription, id);
CREATE INDEX delivery_attempt_at ON delivery_attempt (at);

-- The revision of each tenant's spec whose subscriptions stand in the table above.
CREATE TABLE subscribed_spec (
    tenant   uuid PRIMARY KEY REFERENCES tenant (id),
    revision int NOT NULL
);
