-- Every subscription with what waits in it; of one tenant, or one of it, if asked. `behind`: it has something ahead of
-- its cursor or waiting behind it, so that it may have a lag (lag.sql). $1 tenant or NULL, $2 name or NULL
SELECT s.id, t.name AS tenant_name, s.name, s.kind, s.state, s.why, s.failing_since, s.confirmed_at, s.owner,
    s.lease_until > clock_timestamp() AS leased, s.declared, waiting.retrying, waiting.claimed, waiting.parked,
    l.seq > s.seq OR waiting.retrying + waiting.claimed > 0 AS behind
FROM subscription s JOIN tenant t ON t.id = s.tenant JOIN partition_log l ON l.p = s.p
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state = 'retrying') AS retrying, count(*) FILTER (WHERE state = 'claimed') AS claimed,
        count(*) FILTER (WHERE state = 'parked') AS parked
    FROM straggler WHERE subscription = s.id
) waiting
WHERE ($1::uuid IS NULL OR s.tenant = $1) AND ($2::text IS NULL OR s.name = $2)
ORDER BY t.name, s.name
