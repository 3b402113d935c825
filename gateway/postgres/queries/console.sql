-- name: alarms
-- Partitions that are halted for every gateway, and the reason. $1 how many at most
SELECT p, alarm FROM partition_log WHERE alarm IS NOT NULL ORDER BY p LIMIT $1


-- name: begin_session
-- Ends what is over, and all but the newest of the same key, and begins. $1 digest, $2 the key, sealed,
-- $3 seconds, $4 the key's handle, $5 how many others of the key go on
WITH ended AS (
    DELETE FROM console_session
    WHERE expires_at < now() OR digest IN (
        SELECT digest FROM console_session WHERE handle = $4 ORDER BY began_at DESC OFFSET $5::int
    )
)
INSERT INTO console_session (digest, sealed, expires_at, handle)
VALUES ($1, $2, now() + $3::float8 * interval '1 second', $4)


-- name: end_session
-- $1 digest. Returns the sealed key of the session, or no row.
DELETE FROM console_session WHERE digest = $1 RETURNING CASE WHEN expires_at > now() THEN sealed END


-- name: find_session
-- $1 digest. Returns the sealed key, or no row.
SELECT sealed FROM console_session WHERE digest = $1 AND expires_at > now()


-- name: known_gateways
-- Gateways that have reported in the last day and not ended in order, the last to report first. $1 how many at most
SELECT gateway, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS silent_s FROM catalog_reader
WHERE seen_at > clock_timestamp() - interval '1 day' ORDER BY seen_at DESC, gateway LIMIT $1


-- name: without_redis
-- Gateways that say that they can't reach the Redis of some partitions. $1 seconds after which one is gone, $2 how
-- many at most
SELECT gateway, cardinality(partitions) AS count FROM redis_unreachable
WHERE cardinality(partitions) > 0 AND seen > clock_timestamp() - $1::float8 * interval '1 second'
ORDER BY gateway LIMIT $2
