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
