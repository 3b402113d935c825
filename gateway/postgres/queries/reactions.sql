-- name: act_on_schedule
-- A person's word on a timer that is not being fired: no attempt to fire it is open, of which the append could still be
-- committed. $1 tenant, $2 id, $3 the states it may be in, $4 the state that it gets, $5 when it is due, or null: as before,
-- $6 whether it is due now. Returns it, or no row.
UPDATE schedule
SET state = $4, due_at = CASE WHEN $6 THEN now() ELSE coalesce($5, due_at) END, moved = moved OR $6 OR $5 IS NOT NULL,
    reason = NULL, lease_until = NULL, attempts = 0, ended_at = CASE WHEN $4 = 'pending' THEN NULL ELSE now() END
WHERE tenant = $1 AND id = $2 AND state = ANY ($3::text[]) AND (state <> 'pending' OR attempts = 0)
RETURNING *, extract(epoch FROM due_at)::float8 AS due


-- name: add_schedules
-- Timers, each once; the ids of those that were not there yet. $1 ids, $2 tenant, $3 to $6 of each trigger: event id,
-- aggregate type, key and event type, $7 and $8 where its append ends: seq and mark, $9 seconds from now, or null, $10 the
-- time in Unix seconds, where there are none, $11 the events to append, $12 what cancels them, $13 correlation ids, $14 when
-- none of the triggers could be seen yet, or null. A delay begins a second behind the time at which its trigger was stored,
-- to which the end of that transaction belongs, not before $14, and never later than now.
INSERT INTO schedule (id, tenant, trigger_id, trigger_type, trigger_key, trigger_event, seq, mark, due_at, emit, cancel_on,
    correlation_id)
SELECT made.id, $2, trigger_id, trigger_type, trigger_key, trigger_event, made.seq, mark,
    coalesce(
        least(now(), o.stored_at + greatest(interval '1 second', $14::timestamptz - o.stored_at)) + delay_s * interval '1 second',
        to_timestamp(at_s)),
    emit, cancel_on, made.correlation_id
FROM unnest($1::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bytea[], $9::float8[],
    $10::float8[], $11::bytea[], $12::bytea[], $13::uuid[])
    AS made (id, trigger_id, trigger_type, trigger_key, trigger_event, seq, mark, delay_s, at_s, emit, cancel_on,
        correlation_id)
LEFT JOIN outbox o ON o.id = trigger_id AND o.tenant = $2
ON CONFLICT (id) DO NOTHING
RETURNING id


-- name: count_schedules
-- `late_s`: for how long the timer waits that was due first
SELECT count(*) FILTER (WHERE state = 'pending') AS pending, count(*) FILTER (WHERE state = 'parked') AS parked,
    coalesce(greatest(extract(epoch FROM now() - min(due_at) FILTER (WHERE state = 'pending')), 0), 0)::float8 AS late_s,
    (SELECT coalesce(sum(not_set), 0)::bigint FROM reacting) AS not_set,
    (SELECT count(*) FROM saga WHERE state = 'stuck') AS stuck
FROM schedule WHERE state IN ('pending', 'parked')


-- name: count_pending
-- Pending timers of a tenant. $1 tenant, $2 counted up to here
SELECT count(*) AS count FROM (SELECT FROM schedule WHERE tenant = $1 AND state = 'pending' LIMIT $2) counted


-- name: declare_reacting
-- Tenants whose events are looked at from now on, but for those that were deleted meanwhile. $1 tenants, $2 their partitions
INSERT INTO reacting (tenant, p) SELECT made.tenant, p FROM unnest($1::uuid[], $2::int[]) AS made (tenant, p)
JOIN tenant t ON t.id = made.tenant
ON CONFLICT DO NOTHING


-- name: due_schedules
-- Takes timers that are due; `attempts` counts those of which it is not known that they append nothing. $1 how many at
-- most, at most 200, $2 lease in seconds, $3 tenants whose timers wait. 1,000 timers are looked at in the order of their
-- times; where too many of these wait, each tenant's are looked at by themselves: one tenant may have a million that wait.
-- ARRAY has them looked for once: as a join it can be planned so that they are looked for once for each row. It is run
-- without bitmap scans: they would read all that is due, and sort it. By the time as a number, those that were found are
-- not looked for in the order of their times once more.
WITH RECURSIVE first AS MATERIALIZED (
    SELECT id, due_at, (lease_until IS NULL OR lease_until < now()) AND tenant <> ALL ($3::uuid[]) AS fits
    FROM schedule WHERE state = 'pending' AND due_at <= now() ORDER BY due_at LIMIT 1000
), passed AS MATERIALIZED (
    SELECT count(*) = 1000 AND count(*) FILTER (WHERE fits) < $1 AS over FROM first
), owner (tenant) AS (
    SELECT (SELECT tenant FROM schedule WHERE state = 'pending' ORDER BY tenant LIMIT 1) FROM passed WHERE over
    UNION ALL
    SELECT (SELECT s.tenant FROM schedule s WHERE s.state = 'pending' AND s.tenant > o.tenant ORDER BY s.tenant LIMIT 1)
    FROM owner o WHERE o.tenant IS NOT NULL
), found AS MATERIALIZED (
    SELECT id, due_at FROM first WHERE fits
    UNION
    SELECT due.id, due.due_at FROM owner o CROSS JOIN LATERAL (
        SELECT s.id, s.due_at FROM schedule s
        WHERE s.tenant = o.tenant AND s.state = 'pending' AND s.due_at <= now()
            AND (s.lease_until IS NULL OR s.lease_until < now())
        ORDER BY s.due_at LIMIT 400
    ) due
    WHERE o.tenant <> ALL ($3::uuid[])
    ORDER BY due_at LIMIT 1000
)
UPDATE schedule SET lease_until = now() + $2::float8 * interval '1 second', attempts = attempts + 1
WHERE id = ANY (ARRAY(
    SELECT s.id FROM schedule s
    WHERE s.id = ANY (ARRAY(SELECT id FROM found)) AND s.state = 'pending'
        AND extract(epoch FROM s.due_at) <= extract(epoch FROM now()) AND (s.lease_until IS NULL OR s.lease_until < now())
    ORDER BY extract(epoch FROM s.due_at) LIMIT $1 FOR UPDATE SKIP LOCKED
))
RETURNING *


-- name: end_schedules
-- $1 ids, $2 states, $3 reasons or nulls, $4 the events that they fired or nulls
UPDATE schedule SET state = made.state, reason = made.reason, fired_event = made.event, lease_until = NULL, ended_at = now()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[]) AS made (id, state, reason, event)
WHERE schedule.id = made.id AND schedule.state = 'pending'


-- name: forget_schedules
-- Deletes timers that ended long ago; how many. $1 seconds, $2 at most. Fewer than $2 means that no more are left.
WITH gone AS (
    DELETE FROM schedule WHERE id = ANY(ARRAY(
        SELECT id FROM schedule
        WHERE (state = 'fired' OR state = 'cancelled' AND (reason IS NOT NULL OR trigger_id IS NULL))
            AND ended_at < now() - $1::float8 * interval '1 second'
        ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) AS count FROM gone


-- name: forget_sagas
-- Likewise sagas; the events of each stay. $1 seconds, $2 at most
WITH gone AS (
    DELETE FROM saga WHERE id = ANY(ARRAY(
        SELECT id FROM saga
        WHERE state IN ('completed', 'compensated', 'abandoned') AND changed_at < now() - $1::float8 * interval '1 second'
        ORDER BY changed_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) AS count FROM gone


-- name: forget_not_set
-- Timers that could not be set are counted until the last one of the tenant was so long ago. $1 seconds
UPDATE reacting SET not_set = 0, not_set_at = NULL, not_set_last = NULL
WHERE not_set_at < now() - $1::float8 * interval '1 second'


-- name: get_schedule
-- $1 tenant, $2 id
SELECT *, extract(epoch FROM due_at)::float8 AS due FROM schedule WHERE tenant = $1 AND id = $2


-- name: head
-- The last committed event of a partition. $1 p
SELECT seq, substr(digest, 1, 4) AS mark FROM outbox WHERE p = $1 ORDER BY seq DESC LIMIT 1


-- name: hold_reacting
-- Tenants for this process: those that it may have and that were held longest ago. $1 owner, $2 lease in seconds, $3 how
-- many at most, $4 tenants that it was caught up with, $5 when, $6 tenants that it leaves to others. Nothing waits for the
-- disk: a lease that is lost costs work.
UPDATE reacting SET owner = $1, lease_until = now() + $2::float8 * interval '1 second',
    caught_up_at = coalesce(
        (SELECT at FROM unnest($4::uuid[], $5::timestamptz[]) AS seen (id, at) WHERE seen.id = reacting.tenant), caught_up_at)
WHERE tenant = ANY (ARRAY(
    SELECT tenant FROM reacting
    WHERE (owner = $1 OR lease_until IS NULL OR lease_until < now()) AND tenant <> ALL ($6::uuid[])
    ORDER BY lease_until NULLS FIRST, tenant LIMIT $3 FOR UPDATE SKIP LOCKED
))
RETURNING tenant, p, seq, mark, caught_up_at, now() AS at, set_config('synchronous_commit', 'off', true)


-- name: hold_schedules
-- Timers that are being fired are this process' for longer, or with 0 no more. $1 ids, $2 lease in seconds
UPDATE schedule SET lease_until = now() + $2::float8 * interval '1 second' WHERE id = ANY ($1::uuid[]) AND state = 'pending'


-- name: let_go_reacting
-- $1 owner
UPDATE reacting SET owner = NULL, lease_until = NULL WHERE owner = $1


-- name: list_schedules
-- $1 tenant, $2 state or null, $3 and $4 trigger's aggregate type and key or null, $5 and $6 when the last one before is
-- due, in Unix microseconds, and its id, $7 how many, $8 bytes of events to append after which no further timer is
-- read: `found` counts those, too
SELECT * FROM (
    SELECT *, sum(size) OVER (ORDER BY due_at, id ROWS UNBOUNDED PRECEDING) - size AS size_before,
        count(*) OVER () AS found
    FROM (
        SELECT *, extract(epoch FROM due_at)::float8 AS due, octet_length(emit) + octet_length(cancel_on) AS size
        FROM schedule
        WHERE tenant = $1 AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR trigger_type = $3)
            AND ($4::text IS NULL OR trigger_key = $4)
            AND (due_at, id) > (timestamptz 'epoch' + $5::bigint * interval '1 microsecond', $6::uuid)
        ORDER BY due_at, id LIMIT $7
    ) found
) sized WHERE size_before < $8 ORDER BY due_at, id


-- name: move_reacting
-- $1 tenant, $2 owner, $3 and $4 the seq before and the one reached, $5 its mark, $6 how many timers the events between
-- could not set, $7 the last of these or null. Returns a row if it was there. The transaction's commit does not wait for the
-- disk: what is lost with the place is made again of the events behind it. From the beginning all is counted once more.
UPDATE reacting SET seq = $4, mark = $5, caught_up_at = CASE WHEN $4::bigint > 0 THEN caught_up_at END,
    not_set = CASE WHEN $4::bigint > 0 THEN not_set + $6 ELSE 0 END,
    not_set_at = CASE WHEN $4::bigint = 0 THEN NULL WHEN $6::bigint > 0 THEN now() ELSE not_set_at END,
    not_set_last = CASE WHEN $4::bigint > 0 THEN coalesce($7, not_set_last) END
WHERE tenant = $1 AND owner = $2 AND seq = $3 RETURNING tenant, set_config('synchronous_commit', 'off', true)


-- name: put_off_schedule
-- $1 id, $2 seconds, $3 whether this attempt appends nothing any more
UPDATE schedule SET lease_until = now() + $2::float8 * interval '1 second', attempts = attempts - $3::bool::int
WHERE id = $1 AND state = 'pending'


-- name: spec_of
-- $1 tenant, $2 revision
SELECT s.document, t.salt FROM spec_revision s JOIN tenant t ON t.id = s.tenant WHERE s.tenant = $1 AND s.revision = $2


-- name: due_sagas
-- Those of a tenant whose step has waited too long, the longest first. $1 tenant, $2 how many at most, $3 up to when all
-- events were looked at: what was committed later may be what a step waits for, in time; $4 bytes of states after which no
-- further one is read
SELECT id, data, length FROM (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY due_at, id ROWS UNBOUNDED PRECEDING) AS size_so_far FROM (
        SELECT id, data, length, due_at FROM saga WHERE tenant = $1 AND due_at <= $3 ORDER BY due_at, id LIMIT $2
    ) found
) sized WHERE size_so_far - octet_length(data) < $4 ORDER BY due_at, id


-- name: get_saga
-- $1 tenant, $2 id
SELECT * FROM saga WHERE tenant = $1 AND id = $2


-- name: list_sagas
-- The newest first. $1 tenant, $2 state or null, $3 and $4 when the last one before changed, in Unix microseconds, and its
-- id, or null, $5 how many, $6 bytes of states after which no further saga is read: `found` counts those, too
SELECT * FROM (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY changed_at DESC, id DESC ROWS UNBOUNDED PRECEDING) AS size_so_far,
        count(*) OVER () AS found
    FROM (
        SELECT * FROM saga
        WHERE tenant = $1 AND ($2::text IS NULL OR state = $2)
            AND ($3::bigint IS NULL
                OR (changed_at, id) < (timestamptz 'epoch' + $3 * interval '1 microsecond', $4::uuid))
        ORDER BY changed_at DESC, id DESC LIMIT $5
    ) found
) sized WHERE size_so_far - octet_length(data) < $6 ORDER BY changed_at DESC, id DESC


-- name: put_saga
-- As its newest event says, unless a newer one was seen. $1 id, $2 tenant, $3 name, $4 state, $5 length, $6 seq, $7 data,
-- $8 to $10 what it waits for, $11 correlation id, $12 seconds that it waits, or null
INSERT INTO saga AS s (id, tenant, name, state, length, seq, data, waits_type, waits_key, waits_events, correlation_id, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now() + $12::float8 * interval '1 second')
ON CONFLICT (id) DO UPDATE SET state = $4, length = $5, seq = $6, data = $7, waits_type = $8, waits_key = $9, waits_events = $10,
    due_at = now() + $12::float8 * interval '1 second', changed_at = now()
WHERE s.length < $5


-- name: waiting_sagas
-- Those that may wait for one of some events, by id. $1 tenant, $2 and $3 the events' aggregates, $4 their correlation ids,
-- $5 behind this id, $6 how many at most, $7 bytes of states after which no further one is read
WITH waiting AS MATERIALIZED (
    SELECT id, octet_length(data) AS size FROM saga
    WHERE tenant = $1 AND waits_type IS NOT NULL AND id > $5 AND (
        (waits_type, waits_key) IN (SELECT * FROM unnest($2::text[], $3::text[])) OR correlation_id = ANY ($4::uuid[]))
), next AS (
    SELECT id FROM (
        SELECT id, size, sum(size) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS size_so_far
        FROM (SELECT id, size FROM waiting ORDER BY id LIMIT $6) first
    ) sized WHERE size_so_far - size < $7
)
SELECT s.id, s.data, s.length, s.waits_type, s.waits_key, s.waits_events FROM next JOIN saga s USING (id) ORDER BY s.id
