-- Keys were used just now; those that another gateway has noted, or is noting, are passed over.
-- $1 handles, $2 seconds within which once is enough.
UPDATE api_key SET last_used_at = now()
WHERE handle IN (
    SELECT handle FROM api_key
    WHERE handle = ANY ($1::text[])
      AND (last_used_at IS NULL OR last_used_at <= now() - $2::float8 * interval '1 second')
    FOR UPDATE SKIP LOCKED)
