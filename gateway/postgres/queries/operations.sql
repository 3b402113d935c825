-- name: alarms
-- What was seen committed and missed, since it was last put in order; `id` is the last alarm that says so. $1 p
SELECT max(id) AS id, epoch, seq, chain, who FROM partition_trail
WHERE p = $1 AND what = 'alarm'
    AND id > coalesce((SELECT max(t.id) FROM partition_trail t WHERE t.p = $1 AND t.what IN ('repair', 'rewind')), 0)
GROUP BY epoch, seq, chain, who ORDER BY seq


-- name: bounds
-- The lowest and the highest partition that any row is in.
SELECT (SELECT min(p) FROM outbox) AS lowest, (SELECT max(p) FROM outbox) AS highest


-- name: constraints
-- The unique indexes that the log rests on, as tables and columns; those that are missing or not valid don't show.
SELECT c.relname || '(' || string_agg(a.attname, ', ' ORDER BY k.n) || ')' AS unique_on
FROM pg_index i
    JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_namespace s ON s.oid = c.relnamespace AND s.nspname = 'public'
    CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL
    AND c.relname IN ('outbox', 'append_identity', 'event_tag', 'unique_claim', 'partition_log')
GROUP BY i.indexrelid, c.relname


-- name: contents
-- What a gateway reads when it starts, and what waits for a person.
SELECT (SELECT partitions FROM instance) AS partitions,
    (SELECT count(*) FROM partition_log) AS partition_rows,
    (SELECT min(p) FROM partition_log) AS lowest, (SELECT max(p) FROM partition_log) AS highest,
    (SELECT count(*) FROM partition_log WHERE alarm IS NOT NULL) AS halted,
    ARRAY(SELECT p FROM partition_log WHERE mode = 'direct' ORDER BY p) AS direct,
    (SELECT count(*) FROM tenant) AS tenants,
    (SELECT count(*) FROM api_key WHERE revoked_at IS NULL) AS keys,
    (SELECT count(*) FROM spec_revision) AS specs,
    (SELECT revision FROM catalog_clock) AS clock


-- name: deleted_tenants
-- Tenants of whose events the places are left, or soon will be.
SELECT tenant FROM tenant_deletion


-- name: finish_repair
-- Records a repair; the partition continues in the epoch that the lost commits led to. Its alarm ends
-- when nothing is missing any more; but another one may have come meanwhile. $1 p, $2 epoch, $3 seq at least,
-- $4 epoch to continue in, $5 'repair' or 'partial repair', $6 the operator, $7 what was done, $8 the last alarm that
-- it knew.
-- Subscriptions that were disabled because the event at their position was missing continue where it is there again.
-- Returns what it was, or nothing when the partition stands elsewhere.
WITH did AS (
    SELECT CASE WHEN EXISTS (SELECT FROM partition_trail t WHERE t.p = $1 AND t.what = 'alarm' AND t.id > $8)
        THEN 'partial repair' ELSE $5 END AS what
), mended AS (
    UPDATE partition_log SET epoch = $4,
        alarm = CASE (SELECT what FROM did) WHEN 'repair' THEN NULL ELSE alarm END
    WHERE p = $1 AND epoch = $2 AND seq >= $3
    RETURNING p, epoch, seq, chain
), resumed AS (
    UPDATE subscription s SET state = 'active', why = NULL, why_code = NULL, moves = moves + 1 FROM mended
    WHERE s.p = mended.p AND s.state = 'disabled' AND s.why_code = 'position_lost'
        AND EXISTS (SELECT FROM outbox o WHERE o.p = s.p AND o.seq = s.seq AND substr(o.digest, 1, 4) = s.mark)
)
INSERT INTO partition_trail (p, what, who, epoch, seq, chain, told)
SELECT p, (SELECT what FROM did), $6, epoch, seq, chain, $7 FROM mended RETURNING what


-- name: deployed_specs
-- The newest revision of each tenant. $1 behind this tenant, $2 how many
SELECT t.id AS tenant, t.name, s.revision, s.document
FROM tenant t CROSS JOIN LATERAL (
    SELECT revision, document FROM spec_revision WHERE tenant = t.id ORDER BY revision DESC LIMIT 1
) AS s
WHERE t.id > $1 ORDER BY t.id LIMIT $2


-- name: followers
-- How many lists and projections serve, are built and are paused, of how many projections something did not fit, and how
-- many tenants' are kept by no process.
SELECT count(*) FILTER (WHERE state = 'serving') AS serving, count(*) FILTER (WHERE state = 'building') AS building,
    count(*) FILTER (WHERE paused) AS paused, count(*) FILTER (WHERE misfits > 0) AS unfit, (
        SELECT count(*) FROM followed t
        WHERE (t.lease_until IS NULL OR t.lease_until < clock_timestamp() - interval '30 s')
            AND EXISTS (SELECT FROM follower f WHERE f.tenant = t.tenant AND f.state IN ('building', 'serving'))
    ) AS unkept
FROM follower WHERE state IN ('serving', 'building')


-- name: identities
-- Identities with what they lead to: the row at their place, how many rows of its append follow in one piece,
-- and which append comes after. $1 p (NULL: all), after $2 tenant and $3 identity, $4 most
SELECT i.tenant, i.identity, i.p, i.seq, i.count, octet_length(i.digest) AS digest_bytes, f.id AS first_id,
    f.tenant AS first_tenant, f.append_id,
    (SELECT count(*) FROM outbox o WHERE o.p = i.p AND o.seq >= i.seq
        AND o.seq < i.seq + least(i.count, 100000) AND o.append_id = f.append_id AND o.tenant = i.tenant) AS rows,
    (SELECT o.append_id FROM outbox o WHERE o.p = i.p AND o.seq = i.seq + i.count) AS next_append_id
FROM append_identity i LEFT JOIN outbox f ON f.p = i.p AND f.seq = i.seq
WHERE (i.tenant, i.identity) > ($2, $3) AND ($1::int IS NULL OR i.p = $1)
ORDER BY i.tenant, i.identity LIMIT $4


-- name: lock
-- Whether this session may repair or rewind now; it ends with the session.
SELECT pg_try_advisory_lock(hashtextextended('sluice.repair', 0)) AS held


-- name: next_tenant
-- The first tenant from here on that has rows. $1 tenant
SELECT tenant FROM outbox WHERE tenant >= $1 ORDER BY tenant LIMIT 1


-- name: present
-- Which of these events are there. $1 tenants, $2 event ids; returns their places in the arrays, from 1
SELECT w.n FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS w(tenant, id, n)
    JOIN outbox o ON o.id = w.id AND o.tenant = w.tenant


-- name: privileges
-- What a gateway needs and this role may not do. $1 tables, $2 columns ('' for the whole table), $3 privileges
SELECT w.tab, w.col, w.privilege
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w(tab, col, privilege, n)
WHERE NOT CASE w.col
    WHEN '' THEN has_table_privilege('public.' || w.tab, w.privilege)
    ELSE has_column_privilege('public.' || w.tab, w.col, w.privilege)
END
ORDER BY w.n


-- name: reactions
-- Timers that are pending and parked, those that could not be set and the last of these, sagas that run and are stuck; for
-- how long the timer waits that was due first, and of how many tenants the events are looked at by no process.
SELECT (SELECT count(*) FROM schedule WHERE state = 'pending') AS pending,
    (SELECT count(*) FROM schedule WHERE state = 'parked') AS parked,
    (SELECT coalesce(sum(not_set), 0)::bigint FROM reacting) AS not_set,
    (SELECT not_set_last FROM reacting WHERE not_set > 0 ORDER BY not_set_at DESC LIMIT 1) AS not_set_last,
    (SELECT count(*) FROM saga WHERE state = 'running') AS running,
    (SELECT count(*) FROM saga WHERE state = 'stuck') AS stuck,
    (SELECT greatest(extract(epoch FROM clock_timestamp() - min(due_at)), 0)::float8 FROM schedule WHERE state = 'pending')
        AS late_s,
    (SELECT count(*) FROM reacting WHERE lease_until IS NULL OR lease_until < clock_timestamp() - interval '30 s')
        AS unkept


-- name: rewind
-- Gives up what Postgres has lost: begins an epoch in which nothing that anybody saw before counts any more.
-- $1 p, $2 epoch, $3 seq at least, $4 the new epoch, $5 who, $6 what is given up, $7 the last alarm that was
-- weighed. Returns where the partition stands then, or nothing when it stands elsewhere, or another alarm came.
WITH begun AS (
    UPDATE partition_log SET epoch = $4, rewound = $4, alarm = NULL, owner = $5
    WHERE p = $1 AND epoch = $2 AND seq >= $3 AND rewound < $4
        AND NOT EXISTS (SELECT FROM partition_trail t WHERE t.p = $1 AND t.what = 'alarm' AND t.id > $7)
    RETURNING p, epoch, seq, chain
), kept AS (
    INSERT INTO partition_trail (p, what, who, epoch, seq, chain, told)
    SELECT p, 'rewind', $5, epoch, seq, chain, $6 FROM begun
)
SELECT epoch, seq, chain FROM begun


-- name: rows
-- Whole rows of a partition, in order. $1 p, $2 after this seq, $3 to this seq, $4 most rows, $5 bytes of payloads after
-- which no further row is read
SELECT seq, version, id, tenant, type, actor_type, actor_id, target_type, target_id, correlation_id, causation_id,
    spec_rev, revision, append_id, salt, digest, aggregate_type, aggregate_id,
    (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload
FROM (
    SELECT *, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - size AS size_before FROM (
        SELECT *, coalesce(octet_length(payload), 0) AS size FROM outbox
        WHERE p = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4
    ) found
) sized WHERE size_before < $5 ORDER BY seq


-- name: server
-- What the server and this role's session promise.
SELECT current_setting('server_version_num')::int AS version_num,
    current_setting('server_version') AS version,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    current_setting('wal_level') AS wal_level,
    current_setting('autovacuum') AS autovacuum,
    current_setting('track_counts') AS track_counts,
    current_setting('statement_timeout') AS statement_timeout,
    current_setting('lock_timeout') AS lock_timeout,
    current_setting('transaction_read_only') AS read_only,
    current_setting('data_checksums') AS data_checksums,
    current_setting('max_connections')::int AS max_connections,
    current_user AS role,
    pg_is_in_recovery() AS in_recovery,
    extract(epoch FROM clock_timestamp())::float8 AS clock_s


-- name: standbys
-- Standbys that are connected. A role without pg_monitor sees rows whose state is empty.
SELECT count(*) AS connected, count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
    bool_and(sync_state IS NOT NULL) IS NOT FALSE AS visible
FROM pg_stat_replication


-- name: standing
-- Where a partition stands, and the greatest seq there is, of one moment. $1 p
SELECT l.epoch, l.seq, l.chain, l.mode, l.owner, l.rewound, l.alarm,
    coalesce((SELECT max(o.seq) FROM outbox o WHERE o.p = l.p), 0) AS last_seq
FROM partition_log l WHERE l.p = $1


-- name: storage
-- What was counted of partition $1: the events of its tenants, and how far.
SELECT coalesce((SELECT sum(events) FROM tenant_storage WHERE p = $1), 0)::bigint AS events,
    coalesce((SELECT seq FROM storage_mark WHERE p = $1), 0) AS seq


-- name: unique_values
-- Who holds which unique value of a tenant. $1 tenant
SELECT value, aggregate_type, aggregate_id, name FROM unique_claim WHERE tenant = $1


-- name: versions
-- A tenant's streams and the versions in them, in order. $1 tenant, after $2 aggregate type, $3 key, $4 version,
-- $5 most rows
SELECT aggregate_type, aggregate_id, version, p, seq FROM outbox
WHERE tenant = $1 AND (aggregate_type, aggregate_id, version) > ($2, $3, $4)
ORDER BY aggregate_type, aggregate_id, version LIMIT $5


-- name: without_redis
-- Gateways that say that they can't reach the Redis of some partitions. $1 seconds after which one is gone
SELECT gateway, partitions, since, extract(epoch FROM clock_timestamp() - since)::float8 AS for_s
FROM redis_unreachable WHERE seen > clock_timestamp() - $1::float8 * interval '1 second' ORDER BY since, gateway
