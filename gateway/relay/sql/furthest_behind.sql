-- The active subscriptions, of all tenants, that have most events of their partitions ahead of their cursors, or
-- something waiting behind them. $1 how many
SELECT s.id FROM subscription s JOIN partition_log l ON l.p = s.p
WHERE s.state = 'active' AND (l.seq > s.seq
    OR EXISTS (SELECT FROM straggler w WHERE w.subscription = s.id AND w.state <> 'parked'))
ORDER BY l.seq - s.seq DESC LIMIT $1
