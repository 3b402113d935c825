-- Ends attempts that are older. $1 seconds, $2 at most
DELETE FROM delivery_attempt WHERE id IN (
    SELECT id FROM delivery_attempt WHERE at < now() - $1::float8 * interval '1 s' ORDER BY at LIMIT $2)
