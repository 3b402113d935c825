-- A page of the events of an aggregate type, in the order of their keys. $1 tenant, $2 aggregate type, $3 and $4 the key
-- and version behind which it begins, $5 the event types whose payloads are wanted, $6 how many
SELECT aggregate_id, version, type, CASE WHEN type = ANY ($5) THEN payload END AS payload
FROM outbox
WHERE tenant = $1 AND aggregate_type = $2 AND (aggregate_id, version) > ($3, $4)
ORDER BY aggregate_id, version
LIMIT $6
