-- How many aggregates of a type there are, at most $3. $1 tenant, $2 aggregate type
SELECT count(*)
FROM (SELECT FROM outbox WHERE tenant = $1 AND aggregate_type = $2 AND version = 1 LIMIT $3) AS found
