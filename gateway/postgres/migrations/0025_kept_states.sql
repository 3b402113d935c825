-- States of long streams, kept so that a read folds the events since then and no others. A cache: it may be emptied at
-- any time. `handlers` is a digest of what folds the type's events; a row of other handlers is stale. A row holds only
-- while the event at its version is the one that it was folded up to, and no history was given up since (`rewound`).
-- `claimed_until`: until then a gateway folds the stream by the present handlers.
CREATE TABLE kept_state (
    tenant uuid NOT NULL REFERENCES tenant,
    aggregate_type text COLLATE "C" NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    handlers bytea NOT NULL,
    version bigint NOT NULL,
    event_id uuid NOT NULL,
    rewound bigint NOT NULL,
    folded bytea NOT NULL,
    claimed_until timestamptz,
    PRIMARY KEY (tenant, aggregate_type, aggregate_id, handlers, version)
);
