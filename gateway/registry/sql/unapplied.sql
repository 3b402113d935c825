-- Events of a tenant's stream of names, oldest first. $1 tenant, $2 after this version, $3 most events
SELECT version, type FROM outbox
WHERE tenant = $1 AND aggregate_type = '_names' AND aggregate_id = 'global' AND version > $2
ORDER BY version LIMIT $3
