-- name: acquire
-- Takes tenants whose followers are kept by no living process. $1 owner, $2 lease in seconds, $3 how many at most
UPDATE followed SET owner = $1, lease_until = clock_timestamp() + $2::float8 * interval '1 s'
WHERE tenant IN (
    SELECT tenant FROM followed t
    WHERE (lease_until IS NULL OR lease_until < clock_timestamp())
        AND EXISTS (SELECT FROM follower f WHERE f.tenant = t.tenant AND f.state IN ('building', 'serving'))
    ORDER BY lease_until NULLS FIRST, tenant LIMIT $3 FOR UPDATE SKIP LOCKED
)
RETURNING tenant, changes


-- name: arrived
-- Which of these tenants have events in a stretch of a partition. $1 p, $2 after seq, $3 up to seq, $4 tenants
SELECT DISTINCT tenant FROM outbox
WHERE p = $1 AND seq > $2 AND seq <= $3 AND tenant = ANY($4::uuid[])


-- name: behind
-- Events of a tenant, its followers' to fold, behind a position. $1 tenant, $2 p, $3 after seq
SELECT count(*) AS events FROM outbox
WHERE p = $2 AND seq > $3 AND tenant = $1 AND left(aggregate_type, 1) <> '_'


-- name: create
-- A new build. $1 tenant, $2 kind, $3 name, $4 spec revision, $5 digest, $6 fields, $7 p
INSERT INTO follower (tenant, kind, name, spec_rev, digest, fields, p) VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id


-- name: dropped
-- Builds whose rows are to be deleted. $1 how many at most
SELECT id FROM follower WHERE state = 'dropped' ORDER BY id LIMIT $1


-- name: end_dropped
-- A build without rows is no more. $1 id
DELETE FROM follower WHERE id = $1 AND state = 'dropped'


-- name: every
-- The followers of a tenant, those that are dropped left out. $1 tenant
SELECT id, tenant, kind, name, spec_rev, digest, fields, state, paused, p, seq, mark, moves, rows, misfits,
    last_misfits, rate, served_seq, pruned_seq
FROM follower WHERE tenant = $1 AND state <> 'dropped' ORDER BY kind, name, id


-- name: every_tenant
-- How many builds, live followers, misfits there are, of all tenants.
SELECT count(*) FILTER (WHERE state = 'building') AS building, count(*) FILTER (WHERE state = 'serving') AS serving,
    count(*) FILTER (WHERE paused) AS paused, coalesce(sum(misfits), 0)::bigint AS misfits,
    coalesce(sum(rows) FILTER (WHERE state = 'serving'), 0)::bigint AS rows
FROM follower WHERE state <> 'dropped'


-- name: dependents
-- The rows that were put together from these aggregates, each once, by key. $1 follower, $2 aggregate types, $3 ids,
-- $4 behind this key, $5 how many at most
SELECT DISTINCT d.key FROM unnest($2::text[], $3::text[]) AS changed (aggregate_type, aggregate_id)
CROSS JOIN LATERAL (
    SELECT s.key FROM follower_source s
    WHERE s.follower = $1 AND s.aggregate_type = changed.aggregate_type AND s.aggregate_id = changed.aggregate_id
        AND s.key > $4::text
    ORDER BY s.key LIMIT $5
) d ORDER BY d.key LIMIT $5


-- name: forget_sources
-- What rows were put together from. $1 follower, $2 keys
DELETE FROM follower_source WHERE follower = $1 AND key = ANY($2::text[])


-- name: note_sources
-- $1 follower, $2 tenant, then by the column: $3 aggregate types, $4 ids, $5 keys of rows
INSERT INTO follower_source (follower, tenant, aggregate_type, aggregate_id, key)
SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::text[])


-- name: furthest_behind
-- Of those that serve and are not paused, how far the one is behind that is furthest, in events of its partition, other
-- tenants' among them.
SELECT coalesce(max(l.seq - f.seq), 0)::bigint AS events FROM follower f JOIN partition_log l ON l.p = f.p
WHERE f.state = 'serving' AND NOT f.paused AND EXISTS (
    SELECT FROM outbox o WHERE o.p = f.p AND o.seq > f.seq AND o.seq <= f.seq + 1000 AND o.tenant = f.tenant)


-- name: heads
-- Where each partition stands.
SELECT p, seq FROM partition_log


-- name: held
-- Which of these tenants this process holds still, and how often their followers were changed; holds them on. $1 tenants, $2 owner, $3 lease in seconds
UPDATE followed SET lease_until = clock_timestamp() + $3::float8 * interval '1 s'
WHERE tenant = ANY($1::uuid[]) AND owner = $2
RETURNING tenant, changes


-- name: let_go
-- Releases a tenant's followers: any process may take them. $1 tenant, $2 owner
UPDATE followed SET owner = NULL, lease_until = NULL WHERE tenant = $1 AND owner = $2


-- name: lock_builds
-- The followers of a tenant that are not dropped, locked in the order of ids. So a process that moves one and then drops
-- another waits for a person who pauses both, or the other way round. $1 tenant
SELECT id FROM follower WHERE tenant = $1 AND state <> 'dropped' ORDER BY id FOR UPDATE


-- name: lock
-- The row of a tenant, locked, made where there is none. $1 tenant
INSERT INTO followed (tenant) VALUES ($1)
ON CONFLICT (tenant) DO UPDATE SET changes = followed.changes + 1
RETURNING revision


-- name: move
-- Moves a build by compare-and-swap. $1 id, $2 moves as seen, $3 seq, $4 mark, $5 rows more, $6 misfits more, $7 the last
-- misfits or NULL, $8 events a second. No row: another process, or a person, has changed it. The transaction's commit
-- does not wait for the disk.
UPDATE follower SET seq = $3, mark = $4, rows = rows + $5, misfits = misfits + $6,
    last_misfits = coalesce($7, last_misfits), rate = $8, moves = moves + 1
WHERE id = $1 AND moves = $2 AND state IN ('building', 'serving') AND NOT paused
RETURNING moves, set_config('synchronous_commit', 'off', true)


-- name: moved
-- What changes whenever a follower of a tenant does. $1 tenant
SELECT sum(moves) AS moves, max(id) AS newest, count(*) AS count FROM follower WHERE tenant = $1


-- name: note_spec
-- The followers of this revision are in the table from here on. $1 tenant, $2 revision
UPDATE followed SET revision = $2 WHERE tenant = $1


-- name: page
-- A tenant's committed events in a stretch of a partition, in the order of their commits, as one snapshot has them.
-- $1 p, $2 after this seq, $3 how many positions to look at, $4 tenant, $5 aggregate types whose data are wanted (the
-- system's own, which begin with an underscore, come only where they are named), $6 most events, $7 bytes after which
-- no further event is begun
-- Returns as `outbox_page` does (log.sql).
SELECT bounds.*, e.*
FROM (
    SELECT head.epoch, head.seq AS head, least(head.seq, $2::bigint + $3::bigint) AS reached,
        (SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1 AND seq = $2) AS mark_before,
        substr(last.digest, 1, 4) AS mark_reached, last.id AS id_reached
    FROM partition_log head LEFT JOIN outbox last
        ON last.p = head.p AND last.seq = least(head.seq, $2::bigint + $3::bigint)
    WHERE head.p = $1 OFFSET 0
) bounds LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT *, sum(coalesce(octet_length(payload), 0)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS size_so_far
        FROM (
            SELECT seq, substr(digest, 1, 4) AS mark, append_id, version, id, aggregate_type, aggregate_id, type,
                actor_type, actor_id, target_type, target_id, correlation_id, causation_id, spec_rev, revision,
                (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms, extra,
                CASE WHEN aggregate_type = ANY($5::text[]) THEN payload END AS payload
            FROM outbox
            WHERE p = $1 AND seq > $2 AND seq <= $2::bigint + $3::bigint AND tenant = $4
                AND (left(aggregate_type, 1) <> '_' OR aggregate_type = ANY($5::text[]))
            ORDER BY seq LIMIT $6
        ) found
    ) sized WHERE size_so_far - coalesce(octet_length(payload), 0) < $7
) e ON true
ORDER BY e.seq


-- name: page_of_rows
-- Rows of a build that serves, in an order; the conditions, the order and its columns are made by query.py. $1 follower,
-- $2 how many at most, $3 bytes of data behind which rows have no `data` here: they are for the next page
SELECT w.seq AS seq_of_all, w.mark AS mark_of_all, w.count, r.*
FROM (SELECT seq, mark, <counted> AS count FROM follower WHERE id = $1 AND state = 'serving' OFFSET 0) w
LEFT JOIN LATERAL (
    SELECT key, seq, mark, length, created_at_ms, updated_at_ms<columns>,
        CASE WHEN size_so_far - octet_length(data) < $3 THEN data END AS data
    FROM (
        SELECT *, sum(octet_length(data)) OVER (ROWS UNBOUNDED PRECEDING) AS size_so_far FROM (
            SELECT key, seq, mark, length, created_at_ms, updated_at_ms, data<columns> FROM follower_row
            WHERE follower = $1 AND data IS NOT NULL AND <where> ORDER BY <order> LIMIT $2
        ) found
    ) sized
) r ON true


-- name: count_of_rows
-- Of the same, how many there are. `most`: counted up to here
(SELECT count(*) FROM (
    SELECT FROM follower_row WHERE follower = $1 AND data IS NOT NULL AND <test> LIMIT <most>
) counted)


-- name: changed_rows
-- Rows of a build that serves whose last change lies behind a place, in the order of these, each with whether it passes
-- a test. $1 follower, $2 behind this seq, $3 at that seq behind this key, $4 how many at most, $5 bytes of data behind
-- which rows are `cut`: they are for the next time, and have no `data` here
SELECT w.seq AS seq_of_all, w.mark AS mark_of_all, r.*
FROM (SELECT seq, mark FROM follower WHERE id = $1 AND state = 'serving' OFFSET 0) w
LEFT JOIN LATERAL (
    SELECT key, seq, mark, length, created_at_ms, updated_at_ms, passes, size_before >= $5 AS cut,
        CASE WHEN size_before < $5 THEN data END AS data
    FROM (
        SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS size_before FROM (
            SELECT key, seq, mark, length, created_at_ms, updated_at_ms, data, data IS NOT NULL AND <test> AS passes,
                coalesce(octet_length(data), 0) AS size
            FROM follower_row WHERE follower = $1 AND (seq, key) > ($2::bigint, $3::text) AND <where>
            ORDER BY seq, key LIMIT $4
        ) found
    ) sized
) r ON true


-- name: prune
-- Forgets some rows that events before a time deleted; of a list, such a row says that its state is too large, and stays.
-- $1 Unix milliseconds, $2 how many at most
WITH gone AS (
    DELETE FROM follower_row WHERE (follower, key) IN (
        SELECT r.follower, r.key FROM follower f JOIN follower_row r ON r.follower = f.id
        WHERE f.kind = 'projection' AND f.state IN ('building', 'serving') AND r.data IS NULL AND r.updated_at_ms < $1
        LIMIT $2)
    RETURNING follower, seq
), noted AS (
    UPDATE follower f SET pruned_seq = greatest(f.pruned_seq, latest.seq)
    FROM (SELECT follower, max(seq) AS seq FROM gone GROUP BY follower) latest WHERE f.id = latest.follower
)
SELECT count(*) AS pruned FROM gone


-- name: put
-- Writes rows. $1 follower, $2 tenant, then a column a literal of an array, one item a row: $3 seqs, $4 lengths,
-- $5 created at, $6 updated at; $7 all marks, 4 bytes each; $8 all keys, data and fields; where each begins there and how
-- long it is (-1: none): $9 and $10 of keys, $11 and $12 of data, $13 to $28 of the fields, NULL where there are no more.
-- The arrays are unnested side by side in a list of columns: in FROM, each would be stored before it is read.
INSERT INTO follower_row (tenant, follower, key, seq, mark, length, created_at_ms, updated_at_ms, data,
    f1, f2, f3, f4, f5, f6, f7, f8)
SELECT $2, $1, convert_from(substr($8::bytea, r.key_from, r.key_length), 'UTF8'), r.seq,
    substr($7::bytea, 4 * r.n - 3, 4), r.length, r.created_at_ms, r.updated_at_ms,
    substr($8::bytea, r.data_from, nullif(r.data_length, -1)),
    substr($8::bytea, r.f1_from, nullif(r.f1_length, -1)),
    substr($8::bytea, r.f2_from, nullif(r.f2_length, -1)),
    substr($8::bytea, r.f3_from, nullif(r.f3_length, -1)),
    substr($8::bytea, r.f4_from, nullif(r.f4_length, -1)),
    substr($8::bytea, r.f5_from, nullif(r.f5_length, -1)),
    substr($8::bytea, r.f6_from, nullif(r.f6_length, -1)),
    substr($8::bytea, r.f7_from, nullif(r.f7_length, -1)),
    substr($8::bytea, r.f8_from, nullif(r.f8_length, -1))
FROM (
    SELECT generate_subscripts($3::text::bigint[], 1) AS n,
        unnest($3::text::bigint[]) AS seq,
        unnest($4::text::bigint[]) AS length,
        unnest($5::text::bigint[]) AS created_at_ms,
        unnest($6::text::bigint[]) AS updated_at_ms,
        unnest($9::text::int[]) AS key_from, unnest($10::text::int[]) AS key_length,
        unnest($11::text::int[]) AS data_from, unnest($12::text::int[]) AS data_length,
        unnest($13::text::int[]) AS f1_from, unnest($14::text::int[]) AS f1_length,
        unnest($15::text::int[]) AS f2_from, unnest($16::text::int[]) AS f2_length,
        unnest($17::text::int[]) AS f3_from, unnest($18::text::int[]) AS f3_length,
        unnest($19::text::int[]) AS f4_from, unnest($20::text::int[]) AS f4_length,
        unnest($21::text::int[]) AS f5_from, unnest($22::text::int[]) AS f5_length,
        unnest($23::text::int[]) AS f6_from, unnest($24::text::int[]) AS f6_length,
        unnest($25::text::int[]) AS f7_from, unnest($26::text::int[]) AS f7_length,
        unnest($27::text::int[]) AS f8_from, unnest($28::text::int[]) AS f8_length
) AS r
ON CONFLICT (follower, key) DO UPDATE SET seq = excluded.seq, mark = excluded.mark, length = excluded.length,
    created_at_ms = excluded.created_at_ms, updated_at_ms = excluded.updated_at_ms, data = excluded.data,
    f1 = excluded.f1, f2 = excluded.f2, f3 = excluded.f3, f4 = excluded.f4, f5 = excluded.f5, f6 = excluded.f6,
    f7 = excluded.f7, f8 = excluded.f8


-- name: reached
-- Where a build that serves stands, and whether all of its tenant's events up to a seq are in it. $1 id, $2 seq
SELECT seq, mark, seq >= $2 OR NOT EXISTS (
    SELECT FROM outbox o WHERE o.p = f.p AND o.seq > f.seq AND o.seq <= $2 AND o.tenant = f.tenant
        AND left(o.aggregate_type, 1) <> '_') AS there
FROM follower f WHERE id = $1 AND state = 'serving'


-- name: row
-- One row of a build that serves, and where that stands. $1 follower, $2 key
SELECT w.seq AS seq_of_all, w.mark AS mark_of_all, r.*
FROM (SELECT seq, mark FROM follower WHERE id = $1 AND state = 'serving' OFFSET 0) w
LEFT JOIN LATERAL (
    SELECT key, seq, mark, length, created_at_ms, updated_at_ms, data FROM follower_row WHERE follower = $1 AND key = $2
) r ON true


-- name: rows
-- Rows by their keys, deleted ones among them. $1 follower, $2 keys, $3 most bytes of data: `size` is that of longer ones,
-- which have no `data` here
SELECT key, length, created_at_ms, updated_at_ms, CASE WHEN octet_length(data) <= $3 THEN data END AS data,
    CASE WHEN octet_length(data) > $3 THEN octet_length(data) END AS size
FROM follower_row WHERE follower = $1 AND key = ANY($2::text[])


-- name: serve
-- What serves, or is off, is dropped, since a build that has caught up serves from here on. $1 tenant, $2 kind, $3 name.
-- A row for each, with where it stood.
UPDATE follower SET state = 'dropped', moves = moves + 1
WHERE tenant = $1 AND kind = $2 AND name = $3 AND state IN ('serving', 'off')
RETURNING seq


-- name: serve_now
-- `served_seq`: from there on, live readers have read rows of this build only. $1 id, $2 whether another
-- one served before
UPDATE follower SET state = 'serving', served_seq = CASE WHEN $2 THEN seq ELSE 0 END
WHERE id = $1 AND state = 'building'


-- name: serving
-- The build that serves. $1 tenant, $2 kind, $3 name
SELECT id, tenant, kind, name, spec_rev, digest, fields, state, paused, p, seq, mark, moves, rows, misfits,
    last_misfits, rate, served_seq, pruned_seq
FROM follower WHERE tenant = $1 AND kind = $2 AND name = $3 AND state = 'serving'


-- name: set_paused
-- Pauses, or goes on; locks in the order of ids, as `lock_builds` does. $1 tenant, $2 kind, $3 name, $4 whether it is
-- paused
UPDATE follower SET paused = $4, moves = moves + 1
WHERE id IN (
    SELECT id FROM follower WHERE tenant = $1 AND kind = $2 AND name = $3 AND state IN ('building', 'serving')
    ORDER BY id FOR UPDATE
)
RETURNING id


-- name: set_state
-- Builds that are to be dropped, or are off; locked in the order of ids. $1 ids, $2 state
UPDATE follower SET state = $2, moves = moves + 1
WHERE id IN (SELECT id FROM follower WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE)


-- name: slice
-- Deletes some rows of a build. $1 follower, $2 how many at most
DELETE FROM follower_row WHERE follower = $1 AND key IN (
    SELECT key FROM follower_row WHERE follower = $1 ORDER BY key LIMIT $2)
RETURNING 1


-- name: slice_sources
-- Likewise what its rows were put together from. $1 follower, $2 how many at most
DELETE FROM follower_source WHERE follower = $1 AND (aggregate_type, aggregate_id, key) IN (
    SELECT aggregate_type, aggregate_id, key FROM follower_source WHERE follower = $1
    ORDER BY aggregate_type, aggregate_id, key LIMIT $2)
RETURNING 1


-- name: spec
-- A deployed revision of a tenant's spec. $1 tenant, $2 revision
SELECT document, digest FROM spec_revision WHERE tenant = $1 AND revision = $2


-- name: stream
-- Events of an aggregate up to a place of its partition. $1 tenant, $2 aggregate type, $3 key, $4 first version,
-- $5 p, $6 up to this seq, $7 at most, $8 bytes of data after which no further event is read
SELECT seq, mark, version, id, type, actor_type, actor_id, target_type, target_id, correlation_id, causation_id,
    spec_rev, revision, (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload
FROM (
    SELECT *, sum(size) OVER (ORDER BY version ROWS UNBOUNDED PRECEDING) - size AS size_before FROM (
        SELECT *, substr(digest, 1, 4) AS mark, coalesce(octet_length(payload), 0) AS size FROM outbox
        WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND version >= $4 AND p = $5 AND seq <= $6
        ORDER BY version LIMIT $7
    ) found
) sized WHERE size_before < $8 ORDER BY version


-- name: types_of
-- The JSON types, but for null, that a field has. $1 follower, $2 path, $3 of how many rows
SELECT DISTINCT jsonb_typeof(convert_from(data, 'UTF8')::jsonb #> $2::text[]) AS kind FROM (
    SELECT data FROM follower_row WHERE follower = $1 AND data IS NOT NULL ORDER BY key LIMIT $3
) sampled WHERE coalesce(jsonb_typeof(convert_from(data, 'UTF8')::jsonb #> $2::text[]), 'null') <> 'null'


-- name: undeclared
-- Deployed specs whose followers are not in the table yet; of one tenant if asked. $1 tenant or NULL, $2 the tenant
-- after which to begin, $3 how many
SELECT r.tenant, r.revision, r.document FROM spec_revision r
LEFT JOIN followed done ON done.tenant = r.tenant
WHERE ($1::uuid IS NULL OR r.tenant = $1) AND r.tenant > $2 AND r.revision > coalesce(done.revision, 0)
    AND r.revision = (SELECT max(revision) FROM spec_revision WHERE tenant = r.tenant)
ORDER BY r.tenant LIMIT $3
