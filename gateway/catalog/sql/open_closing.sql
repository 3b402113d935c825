-- Closes for appends what a document does not declare any more. $1 tenant, $2 document, $3 seconds at most.
INSERT INTO spec_closing (tenant, document, expires_at)
VALUES ($1, $2, now() + $3::float8 * interval '1 second')
ON CONFLICT (tenant) DO UPDATE SET document = excluded.document, expires_at = excluded.expires_at
