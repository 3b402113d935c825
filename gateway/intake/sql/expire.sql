-- Ends what was kept long enough, a bounded number at a time; what is in quarantine stays, and the request of
-- a batch as long as one of its items. Postgres' clock decides, since a gateway's may be ahead: ids begin with
-- their time in ms, and the first one to keep is made of it. $1 seconds to keep, $2 how many.
WITH kept AS MATERIALIZED (
    SELECT
        rpad(lpad(to_hex(greatest(((extract(epoch FROM now()) - $1::float8) * 1000)::bigint, 0)), 12, '0'), 32, '0')::uuid AS first
)
DELETE FROM webhook_delivery
WHERE id IN (
    SELECT d.id FROM webhook_delivery d
    WHERE d.id < (SELECT first FROM kept) AND d.verdict <> 'quarantined'
      AND NOT EXISTS (
          SELECT FROM webhook_delivery q
          WHERE q.tenant = d.tenant AND q.request = d.id AND q.verdict = 'quarantined'
            AND q.id >= d.id AND q.id < (SELECT first FROM kept)
      )
    ORDER BY d.id
    LIMIT $2
)
