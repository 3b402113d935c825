-- Keeps what was tried. $1 subscription, then by the column: $2 events, $3 attempts, $4 at, $5 took ms, $6 outcomes,
-- $7 statuses, $8 errors, $9 responses
INSERT INTO delivery_attempt (subscription, event, attempt, at, took_ms, outcome, status, error, response)
SELECT $1, * FROM unnest($2::uuid[], $3::int[], $4::timestamptz[], $5::int[], $6::text[], $7::int[], $8::text[],
    $9::bytea[])
