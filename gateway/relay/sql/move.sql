-- Moves a cursor by compare-and-swap, and holds the lease on. $1 id, $2 moves as seen, $3 seq, $4 mark, $5 state,
-- $6 why, $7 failing since, $8 last confirmed, $9 lease in seconds. No row: somebody else has changed it
UPDATE subscription SET moves = moves + 1, seq = $3, mark = $4, state = $5, why = $6, failing_since = $7,
    confirmed_at = coalesce($8, confirmed_at),
    lease_until = CASE WHEN $9::float8 > 0 THEN clock_timestamp() + $9 * interval '1 s' END
WHERE id = $1 AND moves = $2
RETURNING moves
