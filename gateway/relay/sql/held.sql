-- Which of these subscriptions this relay holds still. $1 ids, $2 owner
SELECT id FROM subscription WHERE id = ANY($1::bigint[]) AND owner = $2
