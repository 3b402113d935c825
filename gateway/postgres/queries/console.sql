-- name: begin_session
-- Ends what is over, and begins. $1 digest, $2 the key, sealed, $3 seconds
WITH over AS (DELETE FROM console_session WHERE expires_at < now())
INSERT INTO console_session (digest, sealed, expires_at) VALUES ($1, $2, now() + $3::float8 * interval '1 second')


-- name: end_session
-- $1 digest. Returns the sealed key of the session, or no row.
DELETE FROM console_session WHERE digest = $1 RETURNING CASE WHEN expires_at > now() THEN sealed END


-- name: find_session
-- $1 digest. Returns the sealed key, or no row.
SELECT sealed FROM console_session WHERE digest = $1 AND expires_at > now()
