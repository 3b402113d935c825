-- Which of these a tenant's events name as actor or target. $1 tenant; then an item each: $2 kind, $3 name; $4 how many
-- events are looked at, null: all. Returns their places n, from 1.
SELECT DISTINCT asked.n
FROM (SELECT actor_type, actor_id, target_type, target_id FROM outbox WHERE tenant = $1 LIMIT $4) AS o
JOIN unnest($2::text[], $3::text[]) WITH ORDINALITY AS asked (kind, name, n)
  ON CASE asked.kind
         WHEN 'agent_type' THEN o.actor_type = asked.name
         WHEN 'target_type' THEN o.target_type = asked.name
         ELSE asked.name IN (o.actor_id, o.target_id)
     END
ORDER BY asked.n
