-- How many events of a tenant's stream of names there are, and how many are in the tables. $1 tenant
SELECT coalesce((
        SELECT version FROM outbox
        WHERE tenant = $1 AND aggregate_type = '_names' AND aggregate_id = 'global'
        ORDER BY version DESC LIMIT 1), 0) AS length,
    coalesce((SELECT version FROM alias_position WHERE tenant = $1), 0) AS applied
