-- Ends what is in quarantine, and the request of a batch with the last row that needs it. $1 tenant, $2 ids.
WITH gone AS (
    DELETE FROM webhook_delivery
    WHERE tenant = $1 AND id = ANY($2::uuid[]) AND verdict = 'quarantined'
    RETURNING id, request, source, delivery_id
), whole AS (
    DELETE FROM webhook_delivery w USING (SELECT DISTINCT request FROM gone) g
    WHERE w.tenant = $1 AND w.id = g.request AND w.verdict = 'batch'
      AND NOT EXISTS (
          SELECT FROM webhook_delivery o
          WHERE o.tenant = w.tenant AND o.request = w.id AND o.id > w.id
            AND o.id NOT IN (SELECT id FROM gone)
      )
)
SELECT id, source, delivery_id FROM gone ORDER BY id
