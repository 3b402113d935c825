-- Who has this content, or this context: of events that are records (gateway/stored_extra.py), which say so at fixed
-- places. All other events are in neither index.
CREATE INDEX outbox_content ON outbox (tenant, substr(extra, 26, 64))
    WHERE substr(extra, 1, 25) = '\x7b22246964656e74697479223a7b22636f6e74656e74223a22'::bytea;
CREATE INDEX outbox_context ON outbox (tenant, substr(extra, 103, 64))
    WHERE substr(extra, 1, 25) = '\x7b22246964656e74697479223a7b22636f6e74656e74223a22'::bytea
        AND substr(extra, 102, 1) = '\x22'::bytea;
