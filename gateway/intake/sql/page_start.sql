-- The first id of a page of a tenant's deliveries, newest first; none where the page is the last one. $1 tenant, $2 id
-- before which it ends, $3 how many rows a page has
SELECT id FROM webhook_delivery WHERE tenant = $1 AND id < $2 ORDER BY id DESC OFFSET $3 - 1 LIMIT 1
