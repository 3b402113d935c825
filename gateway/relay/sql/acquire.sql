-- Takes what nobody delivers now. $1 owner, $2 lease in seconds, $3 how many at most
UPDATE subscription SET owner = $1, lease_until = clock_timestamp() + $2::float8 * interval '1 s', moves = moves + 1
WHERE id IN (
    SELECT id FROM subscription
    WHERE state = 'active' AND kind <> 'pull' AND (lease_until IS NULL OR lease_until < clock_timestamp())
    ORDER BY lease_until NULLS FIRST, id LIMIT $3 FOR UPDATE SKIP LOCKED
)
RETURNING id, tenant, name, kind, declared, document, types, event_types, p, seq, mark, moves, state, why, failing_since,
    confirmed_at, owner
