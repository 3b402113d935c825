-- Of all tenants, by kind: aggregates that are tried again, that are parked, and subscriptions that are disabled.
SELECT s.kind, coalesce(sum(w.retrying), 0)::bigint AS retrying, coalesce(sum(w.parked), 0)::bigint AS parked,
    count(*) FILTER (WHERE s.state = 'disabled') AS disabled
FROM subscription s LEFT JOIN (
    SELECT subscription, count(*) FILTER (WHERE state = 'retrying') AS retrying,
        count(*) FILTER (WHERE state = 'parked') AS parked
    FROM straggler GROUP BY subscription
) w ON w.subscription = s.id
GROUP BY s.kind
