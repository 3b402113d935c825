-- Which of these positions are committed, and by which event. $1 p, $2 seqs
SELECT seq, id FROM outbox WHERE p = $1 AND seq = ANY($2::bigint[])
