-- What was seen committed and missed, since it was last put in order. $1 p
SELECT DISTINCT epoch, seq, chain, who FROM partition_trail
WHERE p = $1 AND what = 'alarm'
    AND id > coalesce((SELECT max(t.id) FROM partition_trail t WHERE t.p = $1 AND t.what IN ('repair', 'rewind')), 0)
ORDER BY seq
