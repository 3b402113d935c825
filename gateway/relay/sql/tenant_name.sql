-- The name of a tenant. $1 tenant
SELECT name FROM tenant WHERE id = $1
