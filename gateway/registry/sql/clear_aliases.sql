-- $1 tenant
DELETE FROM alias WHERE tenant = $1
