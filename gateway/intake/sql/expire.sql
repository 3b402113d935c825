-- Ends what was kept long enough, a bounded number at a time; what is in quarantine stays, and the request of
-- a batch as long as one of its items. $1 the first id to keep (ids begin with their time), $2 how many.
DELETE FROM webhook_delivery
WHERE id IN (
    SELECT d.id FROM webhook_delivery d
    WHERE d.id < $1::uuid AND d.verdict <> 'quarantined'
      AND NOT EXISTS (
          SELECT FROM webhook_delivery q
          WHERE q.tenant = d.tenant AND q.request = d.id AND q.verdict = 'quarantined'
            AND q.id >= d.id AND q.id < $1::uuid
      )
    ORDER BY d.id
    LIMIT $2
)
