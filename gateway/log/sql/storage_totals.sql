-- The $2 tenants that store the most, and every one that has come to $1 bytes (0: no bound).
SELECT tenant, handle, bytes, is_full FROM (
    SELECT s.tenant, t.handle, s.bytes, $1::bigint > 0 AND s.bytes >= $1 AS is_full,
        row_number() OVER (ORDER BY s.bytes DESC, s.tenant) AS place
    FROM tenant_storage s JOIN tenant t ON t.id = s.tenant
) AS each WHERE is_full OR place <= $2
