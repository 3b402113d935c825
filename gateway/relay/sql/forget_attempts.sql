-- Ends attempts that are older; how many. $1 seconds, $2 at most. Two gateways take different ones: fewer
-- than $2 means that no more are left.
WITH ended AS (
    DELETE FROM delivery_attempt WHERE id = ANY(ARRAY(
        SELECT id FROM delivery_attempt WHERE at < now() - $1::float8 * interval '1 s' ORDER BY at LIMIT $2
        FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) AS count FROM ended
