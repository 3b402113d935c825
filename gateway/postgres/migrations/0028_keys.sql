-- Keys may be narrowed to aggregate types, aggregates and event types, and may make others, which end with them.

ALTER TABLE api_key ADD COLUMN narrowed_to text[];
ALTER TABLE api_key ADD COLUMN made_by text REFERENCES api_key (handle) ON DELETE SET NULL;
CREATE INDEX api_key_made_by ON api_key (made_by) WHERE made_by IS NOT NULL;

-- For one stream of a browser, which can't send a key: known by its digest, gone once it is used.
CREATE TABLE ticket (
    digest     bytea PRIMARY KEY,
    key        text NOT NULL REFERENCES api_key (handle) ON DELETE CASCADE,
    path       text NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX ticket_expires ON ticket (expires_at);
CREATE INDEX ticket_key ON ticket (key);
