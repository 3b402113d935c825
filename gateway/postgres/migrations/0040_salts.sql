-- What was hashed with a row into its digest so that the digest does not tell what was in it, once the row is
-- erased and its salt with it (docs/decisions/0052). NULL in rows of releases that had no salts.
ALTER TABLE outbox ADD COLUMN salt bytea;

-- A tenant's salts go with its events.
DO $$ BEGIN
    EXECUTE replace(pg_get_functiondef('delete_tenant_step'::regproc), 'payload = NULL,', 'payload = NULL, salt = NULL,');
END $$;
