-- The newest revision of each tenant whose spec changed after a revision of the clock, and who that is.
-- $1 that revision.
SELECT DISTINCT ON (s.tenant) s.tenant, s.revision, s.document, t.name, t.handle
FROM spec_revision s JOIN tenant t ON t.id = s.tenant
WHERE s.changed > $1
ORDER BY s.tenant, s.revision DESC
