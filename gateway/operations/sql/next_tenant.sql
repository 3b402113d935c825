-- The first tenant from here on that has rows. $1 tenant
SELECT tenant FROM outbox WHERE tenant >= $1 ORDER BY tenant LIMIT 1
