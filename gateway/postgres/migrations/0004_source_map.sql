-- What foreign systems call a tenant's aggregates: (tenant, source, scope, source id) to key.

-- A scope's name is only its address; renaming it touches this row alone. `origin` is the name that it was
-- first seen under, `incarnation` how many scopes began under that name before: keys are derived from these,
-- so a new scope under a name that was given up derives other keys.
CREATE TABLE source_scope (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      uuid NOT NULL REFERENCES tenant (id),
    source      text NOT NULL,
    scope       text NOT NULL,
    origin      text NOT NULL,
    incarnation int NOT NULL,
    UNIQUE (tenant, source, scope),
    UNIQUE (tenant, source, origin, incarnation)
);

-- Inserted once, never changed.
CREATE TABLE source_key (
    scope_id  bigint NOT NULL REFERENCES source_scope (id),
    source_id text NOT NULL,
    key       text NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope_id, source_id)
);
CREATE INDEX source_key_key ON source_key (key);

CREATE VIEW source_map AS
SELECT s.tenant, s.source, s.scope, k.source_id, k.key, k.seen_at
FROM source_key k JOIN source_scope s ON s.id = k.scope_id;
