-- Which of these deliveries are there. $1 ids.
SELECT id FROM webhook_delivery WHERE id = ANY ($1::uuid[])
