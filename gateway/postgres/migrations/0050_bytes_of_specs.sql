-- What the revisions of a tenant's spec take: none is ever deleted, so they count among what the tenant may store.
ALTER TABLE tenant ADD COLUMN spec_bytes bigint NOT NULL DEFAULT 0;
UPDATE tenant SET spec_bytes = stored.bytes
FROM (SELECT tenant, sum(700 + octet_length(document)) AS bytes FROM spec_revision GROUP BY tenant) stored
WHERE stored.tenant = tenant.id;
