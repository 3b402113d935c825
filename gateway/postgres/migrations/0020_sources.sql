-- Which type of aggregate a source id stands for: null for what was mapped before by a command, until it is used.
-- Webhooks' scopes were their aggregate types.
ALTER TABLE source_key ADD COLUMN aggregate_type text;
UPDATE source_key k SET aggregate_type = s.origin FROM source_scope s
WHERE s.id = k.scope_id AND s.origin IN (SELECT DISTINCT aggregate_type FROM outbox WHERE tenant = s.tenant);

CREATE OR REPLACE VIEW source_map AS
SELECT s.tenant, s.source, s.scope, k.source_id, k.key, k.seen_at, k.aggregate_type
FROM source_key k JOIN source_scope s ON s.id = k.scope_id;
