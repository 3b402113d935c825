-- Which of these subscriptions this relay holds still, and how often each was moved. $1 ids, $2 owner
SELECT id, moves FROM subscription WHERE id = ANY($1::bigint[]) AND owner = $2
