-- Counts the next rows of partition $1 behind its mark, $2 at most, and moves the mark past them. Returns how many
-- they were; nothing where there are none, or where another gateway counts just now. $3 bytes are added for each row.
WITH part AS MATERIALIZED (
    SELECT mark.seq AS after, least(log.seq, mark.seq + $2::bigint) AS upto
    FROM storage_mark mark JOIN partition_log log USING (p)
    WHERE p = $1 AND log.seq > mark.seq FOR UPDATE OF mark SKIP LOCKED
), counted AS (
    INSERT INTO tenant_storage AS stored (tenant, p, events, bytes)
    SELECT o.tenant, $1, count(*), sum($3::bigint + coalesce(octet_length(o.payload), 0)
        + coalesce(octet_length(o.extra), 0) + octet_length(o.aggregate_id))
    FROM part, outbox o WHERE o.p = $1 AND o.seq > part.after AND o.seq <= part.upto
    GROUP BY o.tenant
    ON CONFLICT (tenant) DO UPDATE
        SET events = stored.events + excluded.events, bytes = stored.bytes + excluded.bytes
)
UPDATE storage_mark m SET seq = part.upto FROM part WHERE m.p = $1 RETURNING part.upto - part.after AS rows
