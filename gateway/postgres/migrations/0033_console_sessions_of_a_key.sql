-- Whose sessions they are: the key's handle, so that a key has a bounded number of them. Those of gateways of the
-- release before have none, and end within 12 hours.
ALTER TABLE console_session
    ADD COLUMN handle text NOT NULL DEFAULT '',
    ADD COLUMN began_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX console_session_of_key ON console_session (handle, began_at);
