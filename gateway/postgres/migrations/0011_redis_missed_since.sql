-- Since when a gateway has missed Redis without a pause: what an operator asks first.
ALTER TABLE redis_unreachable ADD COLUMN since timestamptz NOT NULL DEFAULT clock_timestamp();
