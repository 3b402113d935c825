-- What was seen committed and missed, since it was last put in order; `id` is the last alarm that says so. $1 p
SELECT max(id) AS id, epoch, seq, chain, who FROM partition_trail
WHERE p = $1 AND what = 'alarm'
    AND id > coalesce((SELECT max(t.id) FROM partition_trail t WHERE t.p = $1 AND t.what IN ('repair', 'rewind')), 0)
GROUP BY epoch, seq, chain, who ORDER BY seq
