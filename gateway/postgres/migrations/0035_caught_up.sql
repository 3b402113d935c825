-- When the process that looks at a tenant's events last saw that there were no further ones: what comes behind its place was
-- committed later.
ALTER TABLE reacting ADD COLUMN caught_up_at timestamptz;
