-- Timers that earlier releases set for times that RFC 3339 can't say: no gateway could list or fire them.
UPDATE schedule SET due_at = least(greatest(due_at, timestamptz '0001-01-01 00:00:00+00'),
    timestamptz '9999-12-31 23:59:59.999999+00')
WHERE due_at < timestamptz '0001-01-01 00:00:00+00' OR due_at >= timestamptz '10000-01-01 00:00:00+00';
