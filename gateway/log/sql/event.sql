-- One event by its id. $1 tenant, $2 event id
SELECT seq, aggregate_type, aggregate_id, version, id, type, actor_type, actor_id, target_type, target_id,
    correlation_id, causation_id, spec_rev, (extract(epoch FROM recorded_at) * 1000)::int8 AS recorded_at_ms,
    extra, payload
FROM outbox WHERE id = $2 AND tenant = $1
