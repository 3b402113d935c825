-- The last version of a stream that was recorded at or before a time.
-- $1 tenant, $2 aggregate type, $3 key, $4 milliseconds since 1970
SELECT version FROM outbox
WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3
    AND recorded_at <= timestamptz 'epoch' + $4::int8 * interval '1 millisecond'
ORDER BY version DESC LIMIT 1
