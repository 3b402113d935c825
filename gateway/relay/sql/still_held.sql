-- A subscription as somebody else has changed it, locked. $1 id, $2 owner. No row: it has another owner, or none
SELECT id, tenant, name, kind, declared, document, types, event_types, p, seq, mark, moves, state, why, failing_since,
    confirmed_at, owner FROM subscription WHERE id = $1 AND owner = $2 FOR UPDATE
