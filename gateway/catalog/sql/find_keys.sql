-- Living keys and their tenants. $1 digests. No row: never minted, revoked or expired. `remaining_s` is null
-- where it never expires: counted here, so that gateways whose clocks differ agree.
SELECT k.digest, k.handle, k.scope, t.id AS tenant_id, t.name AS tenant, t.handle AS tenant_handle,
       extract(epoch FROM k.expires_at - now())::float8 AS remaining_s,
       (SELECT revision FROM catalog_clock) AS revision
FROM api_key k JOIN tenant t ON t.id = k.tenant
WHERE k.digest = ANY ($1::bytea[]) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
