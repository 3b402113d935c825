-- Which migrations were applied, and what each said.
CREATE TABLE IF NOT EXISTS schema_version (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    digest     bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
