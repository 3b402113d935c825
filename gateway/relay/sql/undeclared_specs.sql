-- Deployed specs whose subscriptions are not in the table yet; of one tenant if asked. $1 tenant or NULL
SELECT r.tenant, owner.name, r.revision, r.document FROM spec_revision r
JOIN tenant owner ON owner.id = r.tenant
LEFT JOIN subscribed_spec done ON done.tenant = r.tenant
WHERE ($1::uuid IS NULL OR r.tenant = $1) AND r.revision > coalesce(done.revision, 0)
    AND r.revision = (SELECT max(revision) FROM spec_revision WHERE tenant = r.tenant)
LIMIT 100
