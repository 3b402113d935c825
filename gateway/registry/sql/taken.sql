-- Which names of aggregates that are nobody's children somebody has already. $1 tenant, $2 prefix, $3 bodies
SELECT body FROM alias WHERE tenant = $1 AND path = '' AND prefix = $2 AND body = ANY($3::text[])
