-- Deployed specs whose subscriptions are not in the table yet, by tenant; of one tenant if asked. $1 tenant or NULL,
-- $2 the tenant after which to begin, $3 how many
SELECT r.tenant, r.revision, r.document FROM spec_revision r
LEFT JOIN subscribed_spec done ON done.tenant = r.tenant
WHERE ($1::uuid IS NULL OR r.tenant = $1) AND r.tenant > $2 AND r.revision > coalesce(done.revision, 0)
    AND r.revision = (SELECT max(revision) FROM spec_revision WHERE tenant = r.tenant)
ORDER BY r.tenant LIMIT $3
