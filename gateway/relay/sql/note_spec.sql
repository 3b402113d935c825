-- The subscriptions of this revision are in the table from here on. $1 tenant, $2 revision. No row: somebody was
-- there before
INSERT INTO subscribed_spec (tenant, revision) VALUES ($1, $2)
ON CONFLICT (tenant) DO UPDATE SET revision = excluded.revision WHERE subscribed_spec.revision < excluded.revision
RETURNING revision
