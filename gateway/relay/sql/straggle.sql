-- Notes where aggregates stand. $1 subscription, then by the column: $2 aggregate types, $3 ids, $4 versions,
-- $5 events, $6 states, $7 attempts, $8 due at, $9 since, $10 errors, $11 claims, $12 claimed to
INSERT INTO straggler (subscription, aggregate_type, aggregate_id, version, event, state, attempts, due_at, since,
    error, claim, claimed_to)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::uuid[], $6::text[], $7::int[],
    $8::timestamptz[], $9::timestamptz[], $10::text[], $11::uuid[], $12::bigint[])
ON CONFLICT (subscription, aggregate_type, aggregate_id) DO UPDATE SET version = excluded.version,
    event = excluded.event, state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at,
    since = excluded.since, error = excluded.error, claim = excluded.claim, claimed_to = excluded.claimed_to
