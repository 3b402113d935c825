-- Notes the partitions whose Redis a gateway can't reach, and tells which ones others can't: until they do, or
-- are gone, nobody goes back to it. $1 the gateway, $2 partitions, $3 seconds after which a gateway is gone. A row
-- of the future is of a Postgres whose clock was ahead of this one's, before a fail-over: its gateway is gone, or
-- writes it again.
WITH forgotten AS (
    DELETE FROM redis_unreachable
    WHERE gateway = $1 AND cardinality($2::int[]) = 0 OR seen < clock_timestamp() - interval '1 hour'
), noted AS (
    INSERT INTO redis_unreachable (gateway, partitions, seen)
    SELECT $1, $2, clock_timestamp() WHERE cardinality($2::int[]) > 0
    ON CONFLICT (gateway) DO UPDATE SET partitions = excluded.partitions, seen = excluded.seen
)
SELECT gateway, partitions FROM redis_unreachable
WHERE gateway <> $1 AND seen <= clock_timestamp()
    AND seen > clock_timestamp() - $3::float8 * interval '1 second'
