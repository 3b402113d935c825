-- When Postgres stored an event, by its own clock: `recorded_at` is a gateway's, which may be wrong, and earlier by as long as
-- Postgres or Redis was away. NULL in rows that are older than this column; set apart, the default rewrites none of them.
ALTER TABLE outbox ADD COLUMN stored_at timestamptz;
ALTER TABLE outbox ALTER COLUMN stored_at SET DEFAULT clock_timestamp();
