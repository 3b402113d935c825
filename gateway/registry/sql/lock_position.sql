-- How many events are in the tables; nobody else applies any until this transaction ends. $1 tenant
SELECT version FROM alias_position WHERE tenant = $1 FOR UPDATE
