-- What is deployed for a tenant. $1 tenant. No row: nothing yet.
SELECT revision, document FROM spec_revision WHERE tenant = $1 ORDER BY revision DESC LIMIT 1
