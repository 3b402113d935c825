-- Which project has which key, for ever: in its tenant, and, where it was claimed for the whole instance, in all.
CREATE TABLE project_key (
    tenant       uuid NOT NULL,
    key          text COLLATE "C" NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    everywhere   boolean NOT NULL,
    claimed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key),
    UNIQUE (tenant, aggregate_id)
);
CREATE UNIQUE INDEX project_key_everywhere ON project_key (key) WHERE everywhere;
