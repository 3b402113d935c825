-- The newest revision of each tenant whose spec changed after a revision of the clock. $1 that revision.
SELECT DISTINCT ON (tenant) tenant, revision, document
FROM spec_revision
WHERE changed > $1
ORDER BY tenant, revision DESC
