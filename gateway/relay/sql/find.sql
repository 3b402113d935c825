-- A subscription of a tenant by its name. $1 tenant, $2 name
SELECT id, tenant, name, kind, declared, document, types, event_types, p, seq, mark, moves, state, why, failing_since,
    confirmed_at, owner FROM subscription WHERE tenant = $1 AND name = $2
