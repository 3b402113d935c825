-- Keys with their tenants and what they are worth now. $1 one handle or null, $2 one tenant's id or null.
SELECT k.handle, k.name, k.scope, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.rotated_from,
       t.id AS tenant_id, t.name AS tenant, t.handle AS tenant_handle,
       CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked'
            WHEN k.expires_at <= now() THEN 'expired'
            ELSE 'live' END AS status
FROM api_key k JOIN tenant t ON t.id = k.tenant
WHERE ($1::text IS NULL OR k.handle = $1) AND ($2::uuid IS NULL OR k.tenant = $2)
ORDER BY t.name, k.created_at, k.handle
