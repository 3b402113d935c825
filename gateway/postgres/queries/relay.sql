-- name: acquire
-- Takes subscriptions that no relay delivers now, except those of suspended tenants. $1 owner, $2 lease in seconds,
-- $3 how many at most
UPDATE subscription SET owner = $1, lease_until = clock_timestamp() + $2::float8 * interval '1 s', moves = moves + 1
WHERE id IN (
    SELECT id FROM subscription
    WHERE state = 'active' AND kind <> 'pull' AND (lease_until IS NULL OR lease_until < clock_timestamp())
        AND NOT EXISTS (SELECT FROM tenant t WHERE t.id = subscription.tenant AND t.suspended_at IS NOT NULL)
    ORDER BY lease_until NULLS FIRST, id LIMIT $3 FOR UPDATE SKIP LOCKED
)
RETURNING id, tenant, name, kind, declared, document, types, event_types, p, seq, mark, moves, state, why, why_code,
    failing_since, (SELECT salt FROM tenant WHERE tenant.id = subscription.tenant) AS salt,
    confirmed_at, owner


-- name: adopt_home
-- Deliveries begin from this place. $1 system id, $2 oid of the database, $3 timeline, $4 who says so
INSERT INTO instance_home (system_id, database_oid, timeline, adopted_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (one) DO UPDATE SET system_id = $1, database_oid = $2, timeline = $3, adopted_by = $4,
    adopted_at = clock_timestamp()


-- name: advance
-- Moves the cursor of a subscription whose row is locked. $1 id, $2 seq, $3 mark
UPDATE subscription SET seq = $2, mark = $3, moves = moves + 1 WHERE id = $1


-- name: attempts
-- The newest attempts of a subscription, of one event if asked. $1 subscription, $2 event or NULL, $3 at most
SELECT event, attempt, at, took_ms, outcome, status, error, response FROM delivery_attempt
WHERE subscription = $1 AND ($2::uuid IS NULL OR event = $2) ORDER BY id DESC LIMIT $3


-- name: caught_up
-- These aggregates are stragglers no more. $1 subscription, $2 aggregate types, $3 ids
DELETE FROM straggler USING unnest($2::text[], $3::text[]) AS done (aggregate_type, aggregate_id)
WHERE subscription = $1 AND straggler.aggregate_type = done.aggregate_type
    AND straggler.aggregate_id = done.aggregate_id


-- name: change
-- Another document, and the cursor where it is to be; what was disabled works again. The relay that delivers it
-- notices, and hands over. $1 id, $2 kind, $3 declared, $4 document, $5 types, $6 event types, $7 seq, $8 mark
UPDATE subscription SET kind = $2, declared = $3, document = $4, types = $5, event_types = $6, seq = $7, mark = $8,
    moves = moves + 1, state = CASE state WHEN 'disabled' THEN 'active' ELSE state END, why = NULL,
    why_code = NULL, failing_since = NULL
WHERE id = $1


-- name: confirmed
-- Events of a subscription were acked just now. $1 id
UPDATE subscription SET confirmed_at = now(), moves = moves + 1 WHERE id = $1


-- name: connected
-- How many other connections to this database are Sluice's.
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'sluice' AND pid <> pg_backend_pid()


-- name: create
-- A new subscription. $1 tenant, $2 name, $3 kind, $4 declared, $5 document, $6 types, $7 event types, $8 p, $9 seq,
-- $10 mark, $11 most of a tenant. Returns its id; no row where the tenant has that many, or has it
-- already
INSERT INTO subscription (tenant, name, kind, declared, document, types, event_types, p, seq, mark)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 WHERE (SELECT count(*) FROM subscription WHERE tenant = $1) < $11
ON CONFLICT (tenant, name) DO NOTHING
RETURNING id


-- name: due
-- Whether there is work that no process does now: a subscription to deliver, a timer to fire. The timer that is due
-- first is read by its index: by an EXISTS, all that are pending may be.
SELECT
    EXISTS (
        SELECT FROM subscription s
        WHERE s.state = 'active' AND s.kind <> 'pull' AND (s.lease_until IS NULL OR s.lease_until < clock_timestamp())
            AND NOT EXISTS (SELECT FROM tenant t WHERE t.id = s.tenant AND t.suspended_at IS NOT NULL)
    ) AS subscriptions,
    (
        SELECT id FROM schedule
        WHERE state = 'pending' AND due_at <= now() AND (lease_until IS NULL OR lease_until < now())
        ORDER BY due_at LIMIT 1
    ) IS NOT NULL AS timers


-- name: due_rarely
-- The same of a tenant whose followers are to be kept, rows of a dropped build to delete, a tenant whose events are to be
-- looked at. A statement of its own: one with a parameter for it is planned each time.
SELECT
    EXISTS (
        SELECT FROM followed t
        WHERE (t.lease_until IS NULL OR t.lease_until < clock_timestamp())
            AND EXISTS (SELECT FROM follower f WHERE f.tenant = t.tenant AND f.state IN ('building', 'serving'))
    ) AS followers,
    EXISTS (SELECT FROM follower WHERE state = 'dropped') AS dropped_rows,
    EXISTS (SELECT FROM reacting WHERE lease_until IS NULL OR lease_until < now()) AS reactions


-- name: end_undeclared
-- What a spec declared and declares no more. $1 tenant, $2 the names that it declares
DELETE FROM subscription WHERE tenant = $1 AND declared AND name <> ALL($2::text[])


-- name: every
-- All subscriptions of a tenant, by name. $1 tenant
SELECT id, tenant, name, kind, declared, document, types, event_types, p, seq, mark, moves, state, why, why_code,
    failing_since, (SELECT salt FROM tenant WHERE tenant.id = subscription.tenant) AS salt,
    confirmed_at, owner FROM subscription WHERE tenant = $1 ORDER BY name


-- name: fails_no_longer
-- Nothing that failed is left after a skip: what comes next has its own 5 days. $1 subscription
UPDATE subscription SET failing_since = NULL
WHERE id = $1 AND NOT EXISTS (SELECT FROM straggler WHERE subscription = $1 AND attempts > 0)


-- name: find
-- A subscription of a tenant by its name. $1 tenant, $2 name
SELECT id, tenant, name, kind, declared, document, types, event_types, p, seq, mark, moves, state, why, why_code,
    failing_since, (SELECT salt FROM tenant WHERE tenant.id = subscription.tenant) AS salt,
    confirmed_at, owner FROM subscription WHERE tenant = $1 AND name = $2


-- name: forget_attempts
-- Ends attempts that are older; how many. $1 seconds, $2 at most. Two gateways take different ones: fewer
-- than $2 means that no more are left.
WITH ended AS (
    DELETE FROM delivery_attempt WHERE id = ANY(ARRAY(
        SELECT id FROM delivery_attempt WHERE at < now() - $1::float8 * interval '1 s' ORDER BY at LIMIT $2
        FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) AS count FROM ended


-- name: furthest_behind
-- The active subscriptions, of all tenants, that have most events of their partitions ahead of their cursors, or
-- something waiting behind them. $1 how many
SELECT s.id FROM subscription s JOIN partition_log l ON l.p = s.p
WHERE s.state = 'active' AND (l.seq > s.seq
    OR EXISTS (SELECT FROM straggler w WHERE w.subscription = s.id AND w.state <> 'parked'))
ORDER BY l.seq - s.seq DESC LIMIT $1


-- name: give_over
-- What waits is another target's from here on: tried at once, with its whole schedule. What is parked stays so.
-- $1 subscription
UPDATE straggler SET state = 'retrying', attempts = 0, due_at = now(), error = NULL, claim = NULL, claimed_to = NULL
WHERE subscription = $1 AND state <> 'parked'


-- name: hand_over
-- Releases a locked subscription: any relay may deliver it. $1 id, $2 seq, $3 mark, $4 state, $5 why, $6 its code or
-- NULL, $7 last confirmed
UPDATE subscription SET moves = moves + 1, seq = $2, mark = $3, state = $4, why = $5, why_code = $6,
    confirmed_at = coalesce($7, confirmed_at), owner = NULL, lease_until = NULL
WHERE id = $1


-- name: heads
-- Where each partition stands.
SELECT p, seq FROM partition_log


-- name: held
-- Which of these subscriptions this relay holds still, and may: not those of a tenant that is suspended; and how often
-- each was moved. $1 ids, $2 owner
SELECT id, moves FROM subscription WHERE id = ANY($1::bigint[]) AND owner = $2
    AND NOT EXISTS (SELECT FROM tenant t WHERE t.id = subscription.tenant AND t.suspended_at IS NOT NULL)


-- name: home
-- Where the database was when a relay last delivered from it, and where it is. A standby has no timeline of its own.
SELECT h.system_id AS recorded_system_id, h.database_oid AS recorded_oid, h.timeline AS recorded_timeline,
    (SELECT system_identifier FROM pg_control_system()) AS system_id,
    (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS oid,
    CASE WHEN NOT pg_is_in_recovery()
        THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END AS timeline,
    concat_ws(', ', 'recovery_target=' || nullif(current_setting('recovery_target', true), ''),
        'recovery_target_lsn=' || nullif(current_setting('recovery_target_lsn', true), ''),
        'recovery_target_name=' || nullif(current_setting('recovery_target_name', true), ''),
        'recovery_target_time=' || nullif(current_setting('recovery_target_time', true), ''),
        'recovery_target_xid=' || nullif(current_setting('recovery_target_xid', true), '')) AS restored_to
FROM (VALUES (true)) AS v (one) LEFT JOIN instance_home h ON h.one = v.one


-- name: lag
-- What each of these subscriptions has left to do, and the recording time of the oldest of it. What its target has not
-- confirmed lies ahead of the cursor, or behind it with an aggregate that is tried again or handed out; of each part at
-- most $2 are counted. What is parked, and behind it in its aggregate, waits for a person and is not among them.
-- $1 ids, $2 most counted, $3 how many of the partition's events ahead of a cursor are looked at
SELECT s.id, s.kind, least(ahead.events + behind.events, $2) AS lag_events,
    least(ahead.oldest, behind.oldest) AS oldest, clock_timestamp() AS now
FROM subscription s
CROSS JOIN LATERAL (
    SELECT count(*) AS events, min(recorded_at) AS oldest FROM (
        SELECT recorded_at FROM outbox o
        WHERE o.p = s.p AND o.seq > s.seq AND o.seq <= s.seq + $3 AND o.tenant = s.tenant
            AND CASE WHEN s.types IS NULL THEN left(o.aggregate_type, 1) <> '_'
                ELSE o.aggregate_type = ANY(s.types) END
            AND (s.event_types IS NULL OR o.type = ANY(s.event_types))
        ORDER BY o.seq LIMIT $2
    ) found
) ahead
CROSS JOIN LATERAL (
    SELECT count(*) AS events, min(recorded_at) AS oldest FROM (
        SELECT o.recorded_at FROM (
            SELECT * FROM straggler w
            WHERE w.subscription = s.id AND w.state <> 'parked'
                AND CASE WHEN s.types IS NULL THEN left(w.aggregate_type, 1) <> '_'
                    ELSE w.aggregate_type = ANY(s.types) END
            ORDER BY w.since LIMIT $2
        ) w CROSS JOIN LATERAL (
            SELECT recorded_at FROM outbox
            WHERE tenant = s.tenant AND aggregate_type = w.aggregate_type AND aggregate_id = w.aggregate_id
                AND version >= w.version AND p = s.p AND seq <= s.seq
                AND (s.event_types IS NULL OR type = ANY(s.event_types))
            ORDER BY version LIMIT $2
        ) o
        LIMIT $2
    ) found
) behind
WHERE s.id = ANY($1::bigint[])


-- name: log_attempts
-- Keeps what was tried. $1 subscription, then by the column: $2 events, $3 attempts, $4 at, $5 took ms, $6 outcomes,
-- $7 statuses, $8 errors, $9 responses
INSERT INTO delivery_attempt (subscription, event, attempt, at, took_ms, outcome, status, error, response)
SELECT $1, * FROM unnest($2::uuid[], $3::int[], $4::timestamptz[], $5::int[], $6::text[], $7::int[], $8::text[],
    $9::bytea[])


-- name: move
-- Moves a cursor by compare-and-swap, and holds the lease on. $1 id, $2 moves as seen, $3 seq, $4 mark, $5 state,
-- $6 why, $7 its code or NULL, $8 failing since, $9 last confirmed, $10 lease in seconds. No row: it has been
-- changed elsewhere
UPDATE subscription SET moves = moves + 1, seq = $3, mark = $4, state = $5, why = $6, why_code = $7, failing_since = $8,
    confirmed_at = coalesce($9, confirmed_at),
    lease_until = CASE WHEN $10::float8 > 0 THEN clock_timestamp() + $10 * interval '1 s' END
WHERE id = $1 AND moves = $2
RETURNING moves


-- name: next_of_aggregate
-- The next event of an aggregate that a subscription wants. $1 tenant, $2 aggregate type, $3 id, $4 from this
-- version, $5 event types or NULL, $6 p, $7 up to this seq, $8 at most
SELECT seq, substr(digest, 1, 4) AS mark, version, id, type, actor_type, actor_id, target_type, target_id,
    correlation_id, causation_id, spec_rev, revision, (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms,
    extra, payload
FROM outbox
WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND version >= $4 AND p = $6 AND seq <= $7
    AND ($5::text[] IS NULL OR type = ANY($5))
ORDER BY version LIMIT $8


-- name: note_spec
-- The subscriptions of this revision are in the table from here on. $1 tenant, $2 revision. No row: they
-- were there already
INSERT INTO subscribed_spec (tenant, revision) VALUES ($1, $2)
ON CONFLICT (tenant) DO UPDATE SET revision = excluded.revision WHERE subscribed_spec.revision < excluded.revision
RETURNING revision


-- name: note_why
-- Why nothing is delivered. $1 id, $2 why
UPDATE subscription SET why = $2 WHERE id = $1 AND why IS DISTINCT FROM $2


-- name: parked
-- A parked event, locked. $1 subscription, $2 event
SELECT aggregate_type, aggregate_id, version FROM straggler
WHERE subscription = $1 AND event = $2 AND state = 'parked' FOR UPDATE


-- name: record_home
-- The first relay delivers from here. $1 system id, $2 oid of the database, $3 timeline
INSERT INTO instance_home (system_id, database_oid, timeline) VALUES ($1, $2, $3) ON CONFLICT (one) DO NOTHING


-- name: record_timeline
-- A standby took over. $1 the timeline that was recorded, $2 the one that there is
UPDATE instance_home SET timeline = $2 WHERE timeline = $1


-- name: rename_instance
-- A copy is an instance of its own, with keys of its own in Redis. $1 id
UPDATE instance SET id = $1


-- name: replay
-- Parked events are tried again at once, with their whole schedule. $1 subscription, $2 event or NULL for all
UPDATE straggler SET state = 'retrying', attempts = 0, due_at = now(), since = now()
WHERE subscription = $1 AND state = 'parked' AND ($2::uuid IS NULL OR event = $2)


-- name: set_state
-- Pauses or resumes; the relay that delivers it notices, and hands over. $1 id, $2 state
UPDATE subscription SET state = $2, why = NULL, why_code = NULL, failing_since = NULL, moves = moves + 1 WHERE id = $1


-- name: skip
-- A parked event is passed over: what comes behind it in its aggregate goes on. $1 subscription, $2 event
UPDATE straggler SET state = 'retrying', version = version + 1, attempts = 0, due_at = now(), since = now()
WHERE subscription = $1 AND event = $2 AND state = 'parked'


-- name: standing
-- Every subscription with what waits in it; of one tenant, or one of it, if asked. `behind`: it has something ahead of
-- its cursor or waiting behind it, so that it may have a lag (lag.sql). $1 tenant or NULL, $2 name or NULL
SELECT s.id, t.name AS tenant_name, s.name, s.kind, s.state, s.why, s.failing_since, s.confirmed_at, s.owner,
    s.lease_until > clock_timestamp() AS leased, s.declared, waiting.retrying, waiting.claimed, waiting.parked,
    l.seq > s.seq OR waiting.retrying + waiting.claimed > 0 AS behind
FROM subscription s JOIN tenant t ON t.id = s.tenant JOIN partition_log l ON l.p = s.p
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state = 'retrying') AS retrying, count(*) FILTER (WHERE state = 'claimed') AS claimed,
        count(*) FILTER (WHERE state = 'parked') AS parked
    FROM straggler WHERE subscription = s.id
) waiting
WHERE ($1::uuid IS NULL OR s.tenant = $1) AND ($2::text IS NULL OR s.name = $2)
ORDER BY t.name, s.name


-- name: standing_by_kind
-- Of all tenants, by kind: aggregates that are tried again, that are parked, and subscriptions that are disabled.
SELECT s.kind, coalesce(sum(w.retrying), 0)::bigint AS retrying, coalesce(sum(w.parked), 0)::bigint AS parked,
    count(*) FILTER (WHERE s.state = 'disabled') AS disabled
FROM subscription s LEFT JOIN (
    SELECT subscription, count(*) FILTER (WHERE state = 'retrying') AS retrying,
        count(*) FILTER (WHERE state = 'parked') AS parked
    FROM straggler GROUP BY subscription
) w ON w.subscription = s.id
GROUP BY s.kind


-- name: still_held
-- A subscription as another session has changed it, locked. $1 id, $2 owner. No row: it has another owner, or none
SELECT id, tenant, name, kind, declared, document, types, event_types, p, seq, mark, moves, state, why, why_code,
    failing_since, (SELECT salt FROM tenant WHERE tenant.id = subscription.tenant) AS salt,
    confirmed_at, owner FROM subscription WHERE id = $1 AND owner = $2 FOR UPDATE


-- name: straggle
-- Notes where aggregates stand. $1 subscription, then by the column: $2 aggregate types, $3 ids, $4 versions,
-- $5 events, $6 states, $7 attempts, $8 due at, $9 since, $10 errors, $11 claims, $12 claimed to
INSERT INTO straggler (subscription, aggregate_type, aggregate_id, version, event, state, attempts, due_at, since,
    error, claim, claimed_to)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::uuid[], $6::text[], $7::int[],
    $8::timestamptz[], $9::timestamptz[], $10::text[], $11::uuid[], $12::bigint[])
ON CONFLICT (subscription, aggregate_type, aggregate_id) DO UPDATE SET version = excluded.version,
    event = excluded.event, state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at,
    since = excluded.since, error = excluded.error, claim = excluded.claim, claimed_to = excluded.claimed_to


-- name: stragglers
-- The stragglers of a subscription. $1 subscription
SELECT aggregate_type, aggregate_id, version, event, state, attempts, due_at, since, error, claim, claimed_to
FROM straggler WHERE subscription = $1


-- name: tagged_at
-- Which of these events have which of these tags. $1 keys of tags, $2 seqs
SELECT tag, seq FROM event_tag WHERE tag = ANY($1::uuid[]) AND seq = ANY($2::bigint[])


-- name: tenant_name
-- The name of a tenant. $1 tenant
SELECT name FROM tenant WHERE id = $1


-- name: touch
-- The relay that delivers it notices, hands over, and starts again. $1 subscription
UPDATE subscription SET moves = moves + 1 WHERE id = $1


-- name: undeclared_specs
-- Deployed specs whose subscriptions are not in the table yet, by tenant; of one tenant if asked. $1 tenant or NULL,
-- $2 the tenant after which to begin, $3 how many
SELECT r.tenant, r.revision, r.document FROM spec_revision r
LEFT JOIN subscribed_spec done ON done.tenant = r.tenant
WHERE ($1::uuid IS NULL OR r.tenant = $1) AND r.tenant > $2 AND r.revision > coalesce(done.revision, 0)
    AND r.revision = (SELECT max(revision) FROM spec_revision WHERE tenant = r.tenant)
ORDER BY r.tenant LIMIT $3


-- name: spec_since
-- The deployed spec, if it is another than that of a revision. $1 tenant, $2 revision
SELECT revision, document FROM spec_revision
WHERE tenant = $1 AND revision > $2 ORDER BY revision DESC LIMIT 1


-- name: waiting
-- Events that wait: stragglers by state, the parked ones or all. $1 subscription, $2 state or NULL, $3 at most
SELECT aggregate_type, aggregate_id, version, event, state, attempts, due_at, since, error FROM straggler
WHERE subscription = $1 AND ($2::text IS NULL OR state = $2) ORDER BY since, aggregate_type, aggregate_id LIMIT $3
