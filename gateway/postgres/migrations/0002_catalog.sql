-- Who may call (tenants and their keys) and what each tenant declares (specs).

CREATE TABLE tenant (
    id         uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    handle     text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- `changed`, here and below, is the catalog clock's revision at the row's last change. Moving the clock locks
-- its row until the commit, so whoever reads revision n sees every change up to n, and none is skipped.
CREATE TABLE api_key (
    handle       text PRIMARY KEY,
    tenant       uuid NOT NULL REFERENCES tenant (id),
    name         text NOT NULL DEFAULT '',
    scope        text NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    digest       bytea NOT NULL UNIQUE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    rotated_from text REFERENCES api_key (handle),
    changed      bigint NOT NULL
);
CREATE INDEX api_key_tenant ON api_key (tenant);
CREATE INDEX api_key_rotated_from ON api_key (rotated_from);
CREATE INDEX api_key_changed ON api_key (changed);

CREATE TABLE spec_revision (
    tenant      uuid NOT NULL REFERENCES tenant (id),
    revision    int NOT NULL,
    document    bytea NOT NULL,
    digest      bytea NOT NULL,
    deployed_at timestamptz NOT NULL DEFAULT now(),
    changed     bigint NOT NULL,
    PRIMARY KEY (tenant, revision)
);
CREATE INDEX spec_revision_changed ON spec_revision (changed);

-- The first step of a removal: what `document`, the next revision, no longer declares is closed for appends on
-- every gateway before it is looked at again whether it is in use. A deployer that died leaves it to expire.
CREATE TABLE spec_closing (
    tenant     uuid PRIMARY KEY REFERENCES tenant (id),
    document   bytea NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Moves with every change above; gateways poll it once a second and reload what changed.
CREATE TABLE catalog_clock (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision bigint NOT NULL
);
INSERT INTO catalog_clock (revision) VALUES (0);

-- How far each gateway has followed the clock. One that was not seen for a while honours nothing any more.
CREATE TABLE catalog_reader (
    gateway  uuid PRIMARY KEY,
    revision bigint NOT NULL,
    seen_at  timestamptz NOT NULL
) WITH (fillfactor = 50);
