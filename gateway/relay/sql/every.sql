-- All subscriptions of a tenant, by name. $1 tenant
SELECT id, tenant, name, kind, declared, document, types, event_types, p, seq, mark, moves, state, why, failing_since,
    confirmed_at, owner FROM subscription WHERE tenant = $1 ORDER BY name
