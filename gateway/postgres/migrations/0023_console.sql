-- Who is signed in to the console: `digest` finds the random text that a cookie holds, which opens `sealed`, the key.
CREATE TABLE console_session (
    digest     bytea PRIMARY KEY,
    sealed     bytea NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX console_session_expires ON console_session (expires_at);
