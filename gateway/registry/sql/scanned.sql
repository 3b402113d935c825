-- How far the tenant's aggregates were looked through, and how far its partition has come. $1 tenant, $2 p
SELECT l.seq AS head, coalesce(s.seq, 0) AS seq, coalesce(s.declared, '') AS declared,
    coalesce(s.spec_rev, 0) AS spec_rev
FROM partition_log l LEFT JOIN alias_scan s ON s.tenant = $1 WHERE l.p = $2
