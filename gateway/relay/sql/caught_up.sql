-- These aggregates are stragglers no more. $1 subscription, $2 aggregate types, $3 ids
DELETE FROM straggler USING unnest($2::text[], $3::text[]) AS done (aggregate_type, aggregate_id)
WHERE subscription = $1 AND straggler.aggregate_type = done.aggregate_type
    AND straggler.aggregate_id = done.aggregate_id
