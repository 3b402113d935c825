-- name: alarm
-- Keeps, once, a commit that a gateway saw and Postgres does not have, until an operator has decided; and halts the
-- partition for every gateway, unless it has continued past that commit already: new commits would destroy what can
-- still be repaired. $1 p, $2 the gateway that saw it, $3 epoch, $4 seq, $5 chain, $6 the reason
WITH halted AS (
    UPDATE partition_log SET alarm = $6
    WHERE p = $1 AND alarm IS NULL AND rewound <= $3 AND (seq < $4 OR epoch < $3)
)
INSERT INTO partition_trail (p, what, who, epoch, seq, chain, told)
SELECT $1, 'alarm', $2, $3, $4, $5, $6 FROM partition_log
WHERE p = $1 AND rewound <= $3 AND NOT EXISTS (
    SELECT FROM partition_trail t
    WHERE t.p = $1 AND (t.what, t.who, t.epoch, t.seq, t.chain) = ('alarm', $2, $3, $4, $5) AND t.id > coalesce(
        (SELECT max(d.id) FROM partition_trail d WHERE d.p = $1 AND d.what IN ('repair', 'rewind')), 0))


-- name: append_around
-- What comes before the append that has events at a seq and behind it: its seq and mark; nothing where one ends there.
-- All events of an append stand side by side, at most 1,000. $1 p, $2 seq
SELECT first.seq - 1 AS before, (SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1 AND seq = first.seq - 1) AS mark
FROM outbox here JOIN outbox next ON next.p = $1 AND next.seq = $2::bigint + 1 AND next.append_id = here.append_id
    CROSS JOIN LATERAL (
        SELECT min(seq) AS seq FROM outbox o
        WHERE o.p = $1 AND o.seq > $2::bigint - 1000 AND o.seq <= $2 AND o.append_id = here.append_id
    ) first
WHERE here.p = $1 AND here.seq = $2


-- name: at_work
-- Which of these backends of this role still work on a statement. $1 pids
SELECT pid FROM pg_stat_activity WHERE pid = ANY($1::int[]) AND application_name = 'sluice' AND state = 'active'


-- name: before_time
-- A seq of a partition (0: before all) behind which the first event recorded at or after a time lies, by halving: nearly
-- always the last one before. Clocks that differ make the order of times no order of seqs. $1 p, $2 the time, in
-- milliseconds since 1970
WITH RECURSIVE search(seq, beyond) AS (
    SELECT 0::bigint, head.seq + 1 FROM partition_log head WHERE head.p = $1
    UNION ALL
    SELECT CASE WHEN o.earlier THEN o.seq ELSE s.seq END, CASE WHEN o.earlier THEN s.beyond ELSE o.seq END
    FROM search s CROSS JOIN LATERAL (
        SELECT seq, recorded_at < timestamptz 'epoch' + $2::int8 * interval '1 millisecond' AS earlier FROM outbox
        WHERE p = $1 AND seq = (s.seq + s.beyond) / 2 AND s.beyond - s.seq > 1
    ) o
)
SELECT max(seq) AS seq FROM search


-- name: change_claims
-- Joined to the commit of appends that claim or release unique values (postgres.py): first what becomes free, then what
-- is held, both as all of the commit leaves it. $37 tenants, $38 aggregate types, $39 keys, $40 names and $41 scopes
-- (NULL: all) of what is free; $42 values, and $43 to $47 the same of what is held; $48 the seq of each
), freed AS (
    DELETE FROM unique_claim c
    USING swapped, unnest($37::uuid[], $38::text[], $39::text[], $40::text[], $41::bytea[])
        AS f(tenant, aggregate_type, aggregate_id, name, scope)
    WHERE c.tenant = f.tenant AND c.aggregate_type = f.aggregate_type AND c.aggregate_id = f.aggregate_id
        AND c.name = f.name AND (f.scope IS NULL OR c.scope = f.scope)
    RETURNING 1
), held AS (
    INSERT INTO unique_claim (value, tenant, aggregate_type, aggregate_id, name, scope, seq)
    SELECT h.* FROM swapped, unnest($42::bytea[], $43::uuid[], $44::text[], $45::text[], $46::text[], $47::bytea[],
        $48::bigint[]) AS h
    WHERE (SELECT count(*) FROM freed) >= 0
)


-- name: commit
-- The compare-and-swap that decides: moves the partition from one (seq, chain) to the next and inserts the
-- rows in between, or does nothing at all. Never ON CONFLICT: a violation is a bug and must be loud.
-- $1 p, $2 epoch, $3 and $4 seq and chain before, $5 and $6 after, then a column an array, one item a row, where
-- each payload begins and how long it is (-1: none), all ids of appends, 16 bytes each with the row's salt of 16 behind it
-- (zeros: none), all digests, 32 bytes each, and all payloads; then the identities that clients chose, these and their requests' digests as digests are; then
-- the declared tags, and the seq of the event that has each; the revisions of the events, NULL where all are 1;
-- the forms of their appends; and last the mode. Returns the number of rows inserted, 0 when the swap failed.
-- The arrays are unnested side by side in a list of columns: in FROM, each would be stored before it is read.
-- The advisory lock tells swap_in_turn (migration 14), which takes the UPDATE's place where another gateway's events
-- come before these, that a commit is under way.
WITH swapped AS (
    UPDATE partition_log SET seq = $5, chain = $6
    WHERE p = $1 AND epoch = $2 AND mode = $36 AND seq = $3 AND chain = $4
    RETURNING p, pg_advisory_xact_lock(1936483683, p)
), inserted AS (
    INSERT INTO outbox (p, seq, version, recorded_at, id, tenant, correlation_id, causation_id, spec_rev, revision,
        append_id, salt, digest, aggregate_type, aggregate_id, type, actor_type, actor_id, target_type, target_id,
        extra, payload, form)
    SELECT swapped.p, $3 + r.n, r.version,
        timestamptz 'epoch' + r.recorded_at_ms * interval '1 millisecond', r.id, r.tenant,
        r.correlation_id, r.causation_id, r.spec_rev, nullif(r.revision, 1), substr($24::bytea, 32 * r.n - 31, 16),
        nullif(substr($24::bytea, 32 * r.n - 15, 16), '\x00000000000000000000000000000000'),
        substr($25::bytea, 32 * r.n - 31, 32), r.aggregate_type,
        r.aggregate_id, r.type, r.actor_type, r.actor_id, r.target_type, r.target_id, r.extra,
        substr($26::bytea, r.payload_from, nullif(r.payload_length, -1)), r.form
    FROM swapped, (
        SELECT generate_subscripts($7::text::bigint[], 1) AS n,
            unnest($7::text::bigint[]) AS version,
            unnest($8::text::bigint[]) AS recorded_at_ms,
            unnest($9::text::uuid[]) AS id,
            unnest($10::text::uuid[]) AS tenant,
            unnest($11::text::uuid[]) AS correlation_id,
            unnest($12::text::uuid[]) AS causation_id,
            unnest($13::text::int[]) AS spec_rev,
            unnest($34::text::int[]) AS revision,
            unnest($14::text::text[]) AS aggregate_type,
            unnest($15::text::text[]) AS aggregate_id,
            unnest($16::text::text[]) AS type,
            unnest($17::text::text[]) AS actor_type,
            unnest($18::text::text[]) AS actor_id,
            unnest($19::text::text[]) AS target_type,
            unnest($20::text::text[]) AS target_id,
            unnest($21::bytea[]) AS extra,
            unnest($22::text::int[]) AS payload_from,
            unnest($23::text::int[]) AS payload_length,
            unnest($35::text::int[]) AS form
    ) AS r
    RETURNING 1
), remembered AS (
    INSERT INTO append_identity (tenant, identity, p, seq, count, digest)
    SELECT i.tenant, substr($28::bytea, 32 * i.ordinality::int - 31, 32), swapped.p, i.seq, i.count,
        substr($31::bytea, 32 * i.ordinality::int - 31, 32)
    FROM swapped, unnest($27::text::uuid[], $29::text::bigint[], $30::text::int[]) WITH ORDINALITY
        AS i(tenant, seq, count)
), tagged AS (
    INSERT INTO event_tag (tag, seq)
    SELECT t.tag, t.seq FROM swapped, unnest($32::text::uuid[], $33::text::bigint[]) AS t(tag, seq)
)
SELECT count(*) FROM inserted


-- name: confirm
-- Which of these positions are committed, and by which event. $1 p, $2 seqs
SELECT seq, id FROM outbox WHERE p = $1 AND seq = ANY($2::bigint[])


-- name: event
-- One event by its id. $1 tenant, $2 event id
SELECT seq, aggregate_type, aggregate_id, version, id, type, actor_type, actor_id, target_type, target_id,
    correlation_id, causation_id, spec_rev, revision, (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms,
    extra, payload
FROM outbox WHERE id = $2 AND tenant = $1


-- name: from_time
-- The first event of a stretch that was recorded at or after a time, the mark of the event before it, and where the
-- partition stands. $1 p, $2 after this seq, $3 how many positions to look at, $4 the time, in milliseconds since 1970
SELECT head.seq AS head, found.seq,
    (SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1 AND seq = found.seq - 1) AS mark
FROM partition_log head LEFT JOIN LATERAL (
    SELECT seq FROM outbox
    WHERE p = $1 AND seq > $2 AND seq <= $2::bigint + $3::bigint
        AND recorded_at >= timestamptz 'epoch' + $4::int8 * interval '1 millisecond'
    ORDER BY seq LIMIT 1
) found ON true
WHERE head.p = $1


-- name: heads
-- The committed length of streams. $1 tenants, $2 aggregate types, $3 keys; a row for each, in order
SELECT coalesce((
    SELECT o.version FROM outbox o
    WHERE o.tenant = w.tenant AND o.aggregate_type = w.aggregate_type AND o.aggregate_id = w.key
    ORDER BY o.version DESC LIMIT 1), 0) AS head
FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS w(tenant, aggregate_type, key, n)
ORDER BY w.n


-- name: holders
-- Who holds these unique values. $1 values
SELECT value, tenant, aggregate_type, aggregate_id, name, scope, seq FROM unique_claim WHERE value = ANY($1::bytea[])


-- name: instance
-- Who this instance is.
SELECT id, partitions, partition_rule FROM instance


-- name: last_tagged
-- Of tags, the seq of the last event that has each, NULL: none has; of positions, the mark of the event there; all in
-- one snapshot, in which the partition stood at (epoch, seq). $1 p, of each tag $2 tenant, $3 key, $4 and $5 the
-- aggregate that it is the own one of; $6 positions
SELECT 'tag' AS kind, w.n, l.epoch, l.seq, greatest(
    (SELECT e.seq FROM event_tag e WHERE e.tag = w.tag ORDER BY e.seq DESC LIMIT 1),
    (SELECT o.seq FROM outbox o WHERE o.tenant = w.tenant AND o.aggregate_type = w.type AND o.aggregate_id = w.key
        ORDER BY o.version DESC LIMIT 1)) AS last, NULL::bytea AS mark
FROM partition_log l
    CROSS JOIN unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[]) WITH ORDINALITY AS w(tenant, tag, type, key, n)
WHERE l.p = $1
UNION ALL
SELECT 'position', a.n, l.epoch, l.seq, NULL, (SELECT substr(o.digest, 1, 4) FROM outbox o WHERE o.p = $1 AND o.seq = a.seq)
FROM partition_log l CROSS JOIN unnest($6::bigint[]) WITH ORDINALITY AS a(seq, n) WHERE l.p = $1


-- name: look_directly
-- All that a batch of appends in direct mode is judged on, in one snapshot: where the partition stands, who
-- claimed these identities and event ids, how long these streams are, and what the chain is made of since a seq.
-- $1 p, $2 tenants and $3 identities, $4 tenants and $5 event ids, $6 tenants, $7 aggregate types and $8 keys,
-- $9 that seq, $10 most rows of it
-- Returns the partition's row first; of a stream, `version` is its place in the arrays and `seq` its length.
SELECT 'partition' AS kind, NULL::uuid AS tenant, NULL::bytea AS identity, NULL::uuid AS id,
    p, seq, epoch::int8 AS epoch, 0 AS count, NULL::bytea AS digest, 0::int8 AS version, mode, chain, alarm,
    NULL::bytea AS append_id
FROM partition_log WHERE p = $1
UNION ALL
SELECT 'identity', i.tenant, i.identity, NULL, i.p, i.seq, 0, i.count, i.digest, 0, NULL, NULL, NULL, NULL
FROM unnest($2::uuid[], $3::bytea[]) AS w(tenant, identity)
    JOIN append_identity i ON i.tenant = w.tenant AND i.identity = w.identity
UNION ALL
SELECT 'event', o.tenant, NULL, o.id, o.p, o.seq, 0, 0, NULL, o.version, NULL, NULL, NULL, NULL
FROM unnest($4::uuid[], $5::uuid[]) AS w(tenant, id) JOIN outbox o ON o.id = w.id AND o.tenant = w.tenant
UNION ALL
SELECT 'head', NULL, NULL, NULL, $1, coalesce((
    SELECT o.version FROM outbox o
    WHERE o.tenant = w.tenant AND o.aggregate_type = w.aggregate_type AND o.aggregate_id = w.key
    ORDER BY o.version DESC LIMIT 1), 0), 0, 0, NULL, w.n, NULL, NULL, NULL, NULL
FROM unnest($6::uuid[], $7::text[], $8::text[]) WITH ORDINALITY AS w(tenant, aggregate_type, key, n)
UNION ALL
(SELECT 'since', NULL, NULL, NULL, p, seq, 0, 0, digest, version, NULL, NULL, NULL, append_id
FROM outbox WHERE p = $1 AND seq > $9 ORDER BY seq LIMIT $10)


-- name: identities
-- The next identities of a stretch, one after another, with the seq of the last of them, and where the partition stands
-- in the same snapshot. All of an append are told together. $1 p, $2 after this seq, $3 up to this one, $4 how many
SELECT head.seq, page.*
FROM partition_log head, (
    SELECT count(*) AS count, max(seq) AS last, string_agg(identity, '') AS identities FROM (
        SELECT seq, identity FROM append_identity WHERE p = $1 AND seq > $2 AND seq <= $3
        ORDER BY seq FETCH FIRST ($4::int8) ROWS WITH TIES
    ) AS next
) AS page
WHERE head.p = $1


-- name: look_up_identities
-- The appends that claimed these identities and event ids, with the partition's epoch and seq of the same
-- snapshot. $1 p, $2 tenants and $3 identities, 32 bytes each, one after another; $4 tenants and $5 event ids
SELECT 'partition' AS kind, NULL::uuid AS tenant, NULL::bytea AS identity, NULL::uuid AS id,
    p, seq, epoch::int8 AS epoch, 0 AS count, NULL::bytea AS digest, 0::int8 AS version
FROM partition_log WHERE p = $1
UNION ALL
SELECT 'identity', i.tenant, i.identity, NULL, i.p, i.seq, 0, i.count, i.digest, 0
FROM unnest($2::text::uuid[]) WITH ORDINALITY AS w(tenant, n)
    JOIN append_identity i ON i.tenant = w.tenant AND i.identity = substr($3::bytea, 32 * w.n::int - 31, 32)
UNION ALL
SELECT 'event', o.tenant, NULL, o.id, o.p, o.seq, 0, 0, NULL, o.version
FROM unnest($4::text::uuid[], $5::text::uuid[]) AS w(tenant, id) JOIN outbox o ON o.id = w.id AND o.tenant = w.tenant


-- name: mark
-- Marks where these partitions stand, unless they were marked a moment ago. Nothing waits for a disk or a standby: a
-- mark that is lost costs time alone. $1 partitions, $2 events between two marks
INSERT INTO partition_mark (p, seq, chain)
SELECT l.p, l.seq, l.chain FROM partition_log l, set_config('synchronous_commit', 'off', true)
WHERE l.p = ANY($1::int[]) AND l.seq > 0
    AND NOT EXISTS (SELECT FROM partition_mark m WHERE m.p = l.p AND m.seq > l.seq - $2::bigint)
ON CONFLICT DO NOTHING


-- name: marked
-- The first mark at or after a position. $1 p, $2 from this seq, $3 to this seq
SELECT seq, chain FROM partition_mark WHERE p = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq LIMIT 1


-- name: matches
-- Where the events of a tenant are that a query's items match, oldest first; newest first with each ASC a DESC
-- (postgres.py). Of an item with tags, the events of its rarest tag are looked at: those that are declared so, and
-- those of the aggregate that the tag is the own one of. Of items without, each position.
-- $1 p, $2 tenant, $3 after this seq, $4 up to this one or NULL, $5 how many events of a tag, $6 how many matches; the
-- tags, an item each: $8 items, $9 keys, $10 and $11 aggregate types and keys; the types, an item each: $12 items,
-- $13 aggregate types, $14 event types; $15 the items without tags, of which positions after $7 and up to $16 are
-- looked at
-- Returns where the partition stands, the mark of the event at $3, the positions up to which the tags that were looked
-- at tell, and the matches.
WITH edge AS (
    SELECT epoch, seq AS head, coalesce($4::bigint, seq) AS upper FROM partition_log WHERE p = $1
), tag AS (
    SELECT * FROM unnest($8::int[], $9::uuid[], $10::text[], $11::text[]) WITH ORDINALITY AS t(item, tag, type, key, n)
), found AS MATERIALIZED (
    SELECT t.item, t.n, ARRAY(
        SELECT seq FROM (
            (SELECT e.seq FROM event_tag e WHERE e.tag = t.tag AND e.seq > $3 AND e.seq <= edge.upper
            ORDER BY e.seq ASC LIMIT $5)
            UNION
            (SELECT o.seq FROM outbox o WHERE o.tenant = $2 AND o.aggregate_type = t.type AND o.aggregate_id = t.key
                AND o.version > own.below AND o.version <= own.up_to
            ORDER BY o.version ASC LIMIT $5)
        ) tagged ORDER BY seq ASC LIMIT $5
    ) AS seqs
    FROM edge CROSS JOIN tag t CROSS JOIN LATERAL (
        SELECT min(version) AS below, max(version) AS up_to
        FROM (VALUES ($3::bigint), (edge.upper)) AS at(seq) CROSS JOIN LATERAL (
            -- The last version of the stream up to a seq: there is no index for it, but both grow together.
            WITH RECURSIVE search(version, beyond) AS (
                SELECT 0::bigint, coalesce((
                    SELECT o.version FROM outbox o
                    WHERE o.tenant = $2 AND o.aggregate_type = t.type AND o.aggregate_id = t.key
                    ORDER BY o.version DESC LIMIT 1), 0) + 1
                UNION ALL
                SELECT CASE WHEN o.seq <= at.seq THEN o.version ELSE s.version END,
                    CASE WHEN o.seq <= at.seq THEN s.beyond ELSE o.version END
                FROM search s CROSS JOIN LATERAL (
                    -- Not to be merged into the rest: one event a step, where a join may read the whole stream.
                    SELECT version, seq FROM outbox
                    WHERE tenant = $2 AND aggregate_type = t.type AND aggregate_id = t.key
                        AND version = (s.version + s.beyond) / 2 OFFSET 0
                ) o
                WHERE s.beyond - s.version > 1
            )
            SELECT version FROM search WHERE beyond - version = 1
        ) last
    ) own
), driver AS (
    SELECT DISTINCT ON (item) item, n, seqs FROM found ORDER BY item, cardinality(seqs), n
), look AS MATERIALIZED (
    -- What each event of a driver is asked, once for an item: a search in $12 for each event would take seconds.
    SELECT d.item, d.seqs, d.item = ANY($12::int[]) AS typed, other.* FROM driver d CROSS JOIN LATERAL (
        SELECT array_agg(t.tag) AS tags, array_agg(t.type) AS types, array_agg(t.key) AS keys
        FROM tag t WHERE t.item = d.item AND t.n <> d.n
    ) other
), matched AS (
    SELECT o.seq FROM look d CROSS JOIN unnest(d.seqs) AS at(seq) CROSS JOIN LATERAL (
        -- Not to be merged into the rest: a look-up by (p, seq) for each, never all events of the tenant.
        SELECT seq, tenant, aggregate_type, aggregate_id, type FROM outbox WHERE p = $1 AND seq = at.seq OFFSET 0
    ) o
    WHERE o.tenant = $2 AND CASE WHEN d.typed THEN (d.item, o.aggregate_type, o.type) IN (
            SELECT * FROM unnest($12, $13::text[], $14::text[]))
        ELSE left(o.aggregate_type, 1) <> '_' END
        AND NOT EXISTS (
            SELECT FROM unnest(d.tags, d.types, d.keys) AS t(tag, type, key)
            WHERE NOT (o.aggregate_type = t.type AND o.aggregate_id = t.key)
                AND NOT EXISTS (SELECT FROM event_tag e WHERE e.tag = t.tag AND e.seq = o.seq))
    UNION
    (SELECT o.seq FROM edge, outbox o
    WHERE cardinality($15::int[]) > 0 AND o.p = $1 AND o.tenant = $2 AND o.seq > $7
        AND o.seq <= least(edge.upper, $16)
        -- IS TRUE: so the types are hashed once; else they are joined, all of them for each event.
        AND ((o.aggregate_type, o.type) IN (
            SELECT w.aggregate_type, w.type FROM unnest($12, $13, $14) AS w(item, aggregate_type, type)
            WHERE w.item = ANY($15))) IS TRUE
    ORDER BY o.seq ASC LIMIT $6)
)
SELECT edge.epoch, edge.head, (SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1 AND seq = $3) AS mark_after,
    ARRAY(SELECT seqs[$5] FROM driver WHERE cardinality(seqs) = $5) AS told_up_to,
    ARRAY(SELECT seq FROM matched ORDER BY seq ASC LIMIT $6) AS seqs
FROM edge


-- name: outbox_end
-- Where a partition stands, and the id and the mark of its last event; NULL when it has none. $1 p
SELECT head.epoch, head.seq, last.id, substr(last.digest, 1, 4) AS mark
FROM partition_log head LEFT JOIN outbox last ON last.p = head.p AND last.seq = head.seq WHERE head.p = $1


-- name: outbox_back
-- As `outbox_page`, the newest first: what stands before a seq. $2 that seq, $3 how many positions to look at.
-- Returns a row an event, its columns first, or a single one without; in each of them `reached`, the last of the
-- positions, with its mark, and the mark at $2, NULL where there is no such event.
SELECT e.*, bounds.*
FROM (
    -- Not to be merged into the rest: its look-ups are done once, not for each event.
    SELECT head.seq AS head, $2::bigint - $3::bigint AS reached,
        (SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1 AND seq = $2) AS mark_before,
        (SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1 AND seq = $2::bigint - $3::bigint) AS mark_reached
    FROM partition_log head WHERE head.p = $1 OFFSET 0
) bounds LEFT JOIN LATERAL (
    SELECT seq, mark, version, id, tenant, aggregate_type, aggregate_id, type, actor_type, actor_id,
        target_type, target_id, correlation_id, causation_id, spec_rev, revision, recorded_at_ms, extra, payload,
        size_so_far
    FROM (
        SELECT *, sum(size) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) AS size_so_far FROM (
            SELECT seq, substr(digest, 1, 4) AS mark, version, id, tenant, aggregate_type, aggregate_id, type,
                actor_type, actor_id, target_type, target_id, correlation_id, causation_id, spec_rev, revision,
                (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload,
                coalesce(octet_length(payload), 0) + coalesce(octet_length(extra), 0) AS size
            FROM outbox
            WHERE p = $1 AND seq < $2 AND seq >= $2::bigint - $3::bigint AND tenant = ANY($4::uuid[])
                AND CASE WHEN $5::text[] IS NULL THEN $9 OR left(aggregate_type, 1) <> '_'
                    ELSE aggregate_type IN (SELECT unnest($5)) END
                AND ($6::text[] IS NULL OR type IN (SELECT unnest($6))) AND ($10::uuid IS NULL OR correlation_id = $10)
                AND ($11::text IS NULL OR (actor_type = $11 AND actor_id = $12::text))
            ORDER BY seq DESC LIMIT $7
        ) found
    ) sized WHERE size_so_far - size < $8
) e ON true
ORDER BY e.seq DESC


-- name: outbox_page
-- Committed events of some tenants in a stretch of a partition, in the order of their commits. One snapshot, in
-- which all up to `head` is there: a commit moves the partition's row and inserts its events at once.
-- The names of types are hashed once, however many they are: `= ANY` of a parameter compares each.
-- $1 p, $2 after this seq, $3 how many positions to look at, $4 tenants, $5 aggregate types or NULL for all
-- but the system's own, $6 event types or NULL for all, $7 most events, $8 bytes after which no further event is
-- begun, $9 whether all means the system's own too, $10 correlation id or NULL, $11 and $12 the actor's type and id or
-- NULL
-- Returns one row of the stretch, then a row an event, its columns first and in the order that outbox.py reads them
-- in. Of the stretch: where the partition stands (`head`), the last position of it (`reached`), with the id of the event
-- there, and the marks there and at its start (NULL: no such event). `goes_on`: whether the append has more events
-- behind this one, of `reached` and of an event that a bound makes the last one.
SELECT 0::bigint AS seq, substr(last.digest, 1, 4) AS mark, NULL::bigint AS version, last.id, NULL::uuid AS tenant,
    NULL AS aggregate_type, NULL AS aggregate_id, NULL AS type, NULL AS actor_type, NULL AS actor_id,
    NULL AS target_type, NULL AS target_id, NULL::uuid AS correlation_id, NULL::uuid AS causation_id,
    NULL::int AS spec_rev, NULL::int AS revision, NULL::bigint AS recorded_at_ms, NULL::bytea AS extra,
    NULL::bytea AS payload, NULL::bigint AS size_so_far,
    (SELECT true FROM outbox next WHERE next.p = $1 AND next.seq = last.seq + 1 AND next.append_id = last.append_id)
        AS goes_on,
    head.epoch, head.seq AS head, least(head.seq, $2::bigint + $3::bigint) AS reached,
    (SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1 AND seq = $2) AS mark_before
FROM partition_log head LEFT JOIN outbox last
    ON last.p = head.p AND last.seq = least(head.seq, $2::bigint + $3::bigint)
WHERE head.p = $1
UNION ALL
SELECT seq, mark, version, id, tenant, aggregate_type, aggregate_id, type, actor_type, actor_id,
    target_type, target_id, correlation_id, causation_id, spec_rev, revision, recorded_at_ms, extra, payload,
    size_so_far,
    CASE WHEN size_so_far >= $8 OR n = $7 THEN
        (SELECT true FROM outbox next WHERE next.p = $1 AND next.seq = e.seq + 1 AND next.append_id = e.append_id) END,
    NULL, NULL, NULL, NULL
FROM (
    SELECT *, sum(size) OVER stretch AS size_so_far, count(*) OVER stretch AS n FROM (
        SELECT seq, substr(digest, 1, 4) AS mark, version, id, tenant, aggregate_type, aggregate_id, type,
            actor_type, actor_id, target_type, target_id, correlation_id, causation_id, spec_rev, revision,
            (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload, append_id,
            coalesce(octet_length(payload), 0) + coalesce(octet_length(extra), 0) AS size
        FROM outbox
        WHERE p = $1 AND seq > $2 AND seq <= $2::bigint + $3::bigint AND tenant = ANY($4::uuid[])
            AND CASE WHEN $5::text[] IS NULL THEN $9 OR left(aggregate_type, 1) <> '_'
                ELSE aggregate_type IN (SELECT unnest($5)) END
            AND ($6::text[] IS NULL OR type IN (SELECT unnest($6))) AND ($10::uuid IS NULL OR correlation_id = $10)
            AND ($11::text IS NULL OR (actor_type = $11 AND actor_id = $12::text))
        ORDER BY seq LIMIT $7
    ) found WINDOW stretch AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)
) e WHERE size_so_far - size < $8
ORDER BY seq


-- name: page
-- Committed events of a stream, oldest first; newest first with each ASC a DESC (postgres.py).
-- $1 tenant, $2 aggregate type, $3 key, $4 first version, $5 last version, $6 most events, $7 bytes after which no
-- further event is begun
SELECT seq, version, id, type, actor_type, actor_id, target_type, target_id, correlation_id, causation_id,
    spec_rev, revision, (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload
FROM (
    SELECT *, sum(size) OVER (ORDER BY version ASC ROWS UNBOUNDED PRECEDING) AS size_so_far FROM (
        SELECT *, coalesce(octet_length(payload), 0) + coalesce(octet_length(extra), 0) AS size FROM outbox
        WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND version BETWEEN $4 AND $5
        ORDER BY version ASC LIMIT $6
    ) found
) sized
WHERE size_so_far - size < $7
ORDER BY version ASC


-- name: partition
-- One partition's row. $1 p
SELECT epoch, seq, chain, mode, owner, rewound, alarm FROM partition_log WHERE p = $1


-- name: partitions
-- Every partition's epoch, mode and position, and whether it is halted, for the watch.
SELECT p, epoch, mode, seq, chain, alarm, rewound FROM partition_log ORDER BY p


-- name: placed
-- What stands at a range of positions. $1 p, $2 first seq, $3 last seq
SELECT seq, version, digest FROM outbox WHERE p = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq


-- name: probe
-- Whether this server takes writes.
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'


-- name: quarantine
-- Keeps an append that Postgres refused and ends the epoch, both or neither. Neither where the partition does not
-- stand right before the append any more: another gateway has ended the epoch, or has committed it after all.
-- $1 p, $2 epoch, $3 seq, $4 packed entry, $5 error
WITH sealed AS (
    UPDATE partition_log SET epoch = epoch + 1, owner = '' WHERE p = $1 AND epoch = $2 AND seq = $3 - 1 RETURNING p
)
INSERT INTO quarantined_append (p, epoch, seq, entry, error)
SELECT sealed.p, $2, $3, $4, $5 FROM sealed
RETURNING p


-- name: reach
-- Notes the partitions whose Redis a gateway can't reach, and tells which ones others can't: until they do, or
-- are gone, no gateway uses it again. $1 the gateway, $2 partitions, $3 seconds after which a gateway is gone. A row
-- of the future is of a Postgres whose clock was ahead of this one's, before a fail-over: its gateway is gone, or
-- writes it again.
WITH forgotten AS (
    DELETE FROM redis_unreachable
    WHERE gateway = $1 AND cardinality($2::int[]) = 0 OR seen < clock_timestamp() - interval '1 hour'
), noted AS (
    INSERT INTO redis_unreachable (gateway, partitions, seen)
    SELECT $1, $2, clock_timestamp() WHERE cardinality($2::int[]) > 0
    ON CONFLICT (gateway) DO UPDATE SET partitions = excluded.partitions, seen = excluded.seen
)
SELECT gateway, partitions FROM redis_unreachable
WHERE gateway <> $1 AND seen <= clock_timestamp()
    AND seen > clock_timestamp() - $3::float8 * interval '1 second'


-- name: receipt
-- The events of one committed append. $1 p, $2 first seq, $3 last seq
SELECT p, seq, id, tenant, aggregate_type, aggregate_id, version, substr(digest, 1, 4) AS mark, form
FROM outbox WHERE p = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq


-- name: receipt_by_identity
-- The events of the committed append that has an identity, or an event with this id, in their order. All events of an
-- append stand side by side, at most 1,000. $1 tenant, $2 identity, $3 event id or NULL
WITH claimed AS (
    SELECT p, seq AS first, seq + count - 1 AS last FROM append_identity
    WHERE tenant = $1::text::uuid AND identity = $2::bytea
), minted AS (
    SELECT p, seq, append_id FROM outbox WHERE id = $3::text::uuid AND tenant = $1::text::uuid
)
SELECT o.p, o.seq, o.id, o.tenant, o.aggregate_type, o.aggregate_id, o.version, substr(o.digest, 1, 4) AS mark, o.form
FROM claimed c JOIN outbox o ON o.p = c.p AND o.seq BETWEEN c.first AND c.last
UNION ALL
SELECT o.p, o.seq, o.id, o.tenant, o.aggregate_type, o.aggregate_id, o.version, substr(o.digest, 1, 4), o.form
FROM minted m JOIN outbox o ON o.p = m.p AND o.seq BETWEEN m.seq - 999 AND m.seq + 999 AND o.append_id = m.append_id
WHERE NOT EXISTS (SELECT FROM claimed)
ORDER BY 2


-- name: roll
-- What the chain is made of, in order. $1 p, $2 after this seq, $3 to this seq, $4 most rows
SELECT seq, version, append_id, digest FROM outbox WHERE p = $1 AND seq > $2 AND seq <= $3
ORDER BY seq LIMIT $4


-- name: seal
-- Ends an epoch: nothing sequenced in it commits after this. With it goes the way that appends take in the next.
-- Where it ended is marked.
-- $1 p, $2 epoch, $3 the gateway that seals, $4 'redis' or 'direct', $5 an epoch that a gateway has seen begin: the next
-- one lies beyond it too, where Postgres has lost the seal that began it. Returns the row as it is from then on in that
-- epoch, or nothing when another gateway was faster.
WITH sealed AS (
    UPDATE partition_log SET epoch = greatest(epoch, $5) + 1, mode = $4, owner = $3 WHERE p = $1 AND epoch = $2
    RETURNING p, epoch, seq, chain, rewound
), marked AS (
    INSERT INTO partition_mark (p, seq, chain) SELECT p, seq, chain FROM sealed WHERE seq > 0 ON CONFLICT DO NOTHING
)
SELECT epoch, seq, chain, rewound FROM sealed


-- name: settle
-- Where partitions stand, and which events stand at places in them, once all of that is as durable as a commit is
-- here: this changes nothing, but writes, and only what writes waits for a standby, which takes commits in order. It
-- locks nothing, so it waits for no commit that is under way. $1 partitions, $2 a seq in each, 0 for none.
WITH written AS MATERIALIZED (SELECT pg_logical_emit_message(true, 'sluice', 'settle') AS lsn)
SELECT head.epoch, head.seq, head.chain, head.mode, head.owner, head.rewound, head.alarm,
    (SELECT o.id FROM outbox o WHERE o.p = w.p AND o.seq = w.seq) AS id, written.lsn
FROM written CROSS JOIN unnest($1::int[], $2::bigint[]) WITH ORDINALITY AS w(p, seq, n)
    JOIN partition_log head ON head.p = w.p
ORDER BY w.n


-- name: storage_behind
-- The partitions of which rows are not counted yet. It locks nothing: where nothing is appended, nothing is written.
SELECT p FROM storage_mark mark JOIN partition_log log USING (p) WHERE log.seq > mark.seq ORDER BY p


-- name: storage_count
-- Counts the next rows of partition $1 behind its mark, $2 at most, and moves the mark past them. Returns how many
-- they were; nothing where there are none, or where another gateway counts just now. $3 bytes are added for each row.
WITH part AS MATERIALIZED (
    SELECT mark.seq AS after, least(log.seq, mark.seq + $2::bigint) AS upto
    FROM storage_mark mark JOIN partition_log log USING (p)
    WHERE p = $1 AND log.seq > mark.seq FOR UPDATE OF mark SKIP LOCKED
), counted AS (
    INSERT INTO tenant_storage AS stored (tenant, p, events, bytes)
    SELECT o.tenant, $1, count(*), sum($3::bigint + coalesce(octet_length(o.payload), 0)
        + coalesce(octet_length(o.extra), 0) + octet_length(o.aggregate_id))
    FROM part, outbox o WHERE o.p = $1 AND o.seq > part.after AND o.seq <= part.upto
    GROUP BY o.tenant
    ON CONFLICT (tenant) DO UPDATE
        SET events = stored.events + excluded.events, bytes = stored.bytes + excluded.bytes
)
UPDATE storage_mark m SET seq = part.upto FROM part WHERE m.p = $1 RETURNING part.upto - part.after AS rows


-- name: storage_marks
-- A mark for every partition; those that are there stay.
INSERT INTO storage_mark (p, seq) SELECT p, 0 FROM partition_log ON CONFLICT DO NOTHING


-- name: storage_totals
-- The $2 tenants that store the most, and every one that has come to $1 bytes (0: no bound).
SELECT tenant, handle, bytes, is_full FROM (
    SELECT tenant, handle, bytes, $1::bigint > 0 AND bytes >= $1 AS is_full,
        row_number() OVER (ORDER BY bytes DESC, tenant) AS place
    FROM (
        SELECT t.id AS tenant, t.handle, coalesce(s.bytes, 0) + t.spec_bytes AS bytes
        FROM tenant t LEFT JOIN tenant_storage s ON s.tenant = t.id
    ) stored WHERE bytes > 0
) AS each WHERE is_full OR place <= $2


-- name: stream
-- The committed length of a stream, where its last event stands, and some of its events, oldest first; newest first
-- with each ASC a DESC (postgres.py). One row at least; nulls but for the length where there is nothing.
-- $1 tenant, $2 aggregate type, $3 key, $4 first version, $5 last version, $6 most events, $7 bytes after which no
-- further event is begun
SELECT coalesce(head.version, 0) AS head, head.seq AS head_seq, head.id AS head_id, page.*
FROM (SELECT 1) AS one
LEFT JOIN (
    SELECT o.version, o.seq, o.id FROM outbox o
    WHERE o.tenant = $1 AND o.aggregate_type = $2 AND o.aggregate_id = $3
    ORDER BY o.version DESC LIMIT 1
) AS head ON true
LEFT JOIN (
    SELECT seq, version, id, type, actor_type, actor_id, target_type, target_id, correlation_id, causation_id,
        spec_rev, revision, (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload
    FROM (
        SELECT *, sum(size) OVER (ORDER BY version ASC ROWS UNBOUNDED PRECEDING) AS size_so_far FROM (
            SELECT *, coalesce(octet_length(payload), 0) + coalesce(octet_length(extra), 0) AS size FROM outbox
            WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND version BETWEEN $4 AND $5
            ORDER BY version ASC LIMIT $6
        ) found
    ) sized
    WHERE size_so_far - size < $7
) AS page ON true
ORDER BY page.version ASC


-- name: streams
-- As the statement `stream`, of several streams at once: where one has no more events than asked for, all of them, up
-- to those that a number of bytes takes. $1 tenants, $2 aggregate types, $3 keys, a line each, $4 most events, $5 bytes
-- after which no further event is begun. In the order of the streams, `n` from 1, and of versions; one row at least for
-- each
SELECT w.n, coalesce(head.version, 0) AS head, head.seq AS head_seq, head.id AS head_id, page.*
FROM unnest(
    string_to_array($1, E'\n')::uuid[], string_to_array($2, E'\n'), string_to_array($3, E'\n')
) WITH ORDINALITY AS w(tenant, aggregate_type, key, n)
LEFT JOIN LATERAL (
    SELECT o.version, o.seq, o.id FROM outbox o
    WHERE o.tenant = w.tenant AND o.aggregate_type = w.aggregate_type AND o.aggregate_id = w.key
    ORDER BY o.version DESC LIMIT 1
) AS head ON true
LEFT JOIN LATERAL (
    SELECT seq, version, id, type, actor_type, actor_id, target_type, target_id, correlation_id, causation_id,
        spec_rev, revision, (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms, extra, payload
    FROM (
        SELECT *, sum(size) OVER (ORDER BY version ROWS UNBOUNDED PRECEDING) AS size_so_far FROM (
            SELECT *, coalesce(octet_length(payload), 0) + coalesce(octet_length(extra), 0) AS size FROM outbox o
            WHERE o.tenant = w.tenant AND o.aggregate_type = w.aggregate_type AND o.aggregate_id = w.key
                AND head.version <= $4
            ORDER BY version LIMIT $4
        ) found
    ) sized
    WHERE size_so_far - size < $5
) AS page ON true
ORDER BY w.n, page.version


-- name: streams_narrow
-- Of several streams what folds of their events take, a row each. $1 tenants, $2 aggregate types, $3 keys, a line each,
-- $4 last version of each, $5 most bytes of an event: where one is longer, or was erased, there is no `data`; $6 event
-- types of which more than their data is told, $7 those of which metadata are told too: `whole` has those of each such
-- event, NULL where there is none; $8 up to which seq no id is told. `n` is the place of the stream, from 1; of an empty
-- one `count` is 0, and nothing else is told. `head` is the last version, `seq` and `id` are that one's. `data` has a
-- NUL byte between those of two events; `first_at` and `last_at` are milliseconds since 1970. Arrays have the events in
-- the order of versions; there are none where no event is of a type of $6, and no `revisions` where all are 1
SELECT w.n, e.count, e.head, e.seq, e.id, e.first_at, e.last_at, e.data, e.types, e.times, e.revisions, e.whole
FROM unnest(
    string_to_array($1, E'\n')::uuid[], string_to_array($2, E'\n'), string_to_array($3, E'\n')
) WITH ORDINALITY AS w(tenant, aggregate_type, key, n)
CROSS JOIN LATERAL (
    SELECT count(*) AS count, max(o.version) AS head, max(o.seq) AS seq,
        (array_agg(o.id ORDER BY o.version) FILTER (WHERE o.seq > $8))[count(*) FILTER (WHERE o.seq > $8)] AS id,
        (date_part('epoch', (array_agg(o.recorded_at ORDER BY o.version))[1]) * 1000)::int8 AS first_at,
        (date_part('epoch', (array_agg(o.recorded_at ORDER BY o.version))[count(*)]) * 1000)::int8 AS last_at,
        CASE WHEN max(o.size) <= $5 AND count(o.payload) = count(*)
            THEN string_agg(o.payload, '\x00'::bytea ORDER BY o.version) END AS data,
        CASE WHEN bool_or(o.apart) THEN array_agg(o.type ORDER BY o.version) END AS types,
        CASE WHEN bool_or(o.apart)
            THEN array_agg((date_part('epoch', o.recorded_at) * 1000)::int8 ORDER BY o.version) END AS times,
        CASE WHEN count(o.revision) > 0 AND bool_or(o.apart) THEN array_agg(o.revision ORDER BY o.version) END
            AS revisions,
        CASE WHEN max(o.size) <= $5 THEN array_agg(
            ROW(o.actor_type, o.actor_id, o.target_type, o.target_id, o.correlation_id, o.causation_id, o.extra)
            ORDER BY o.version
        ) FILTER (WHERE o.whole) END AS whole
    FROM (
        SELECT *, type = ANY($6::text[]) AS apart, type = ANY($7::text[]) AS whole,
            octet_length(payload)
                + CASE WHEN type = ANY($7::text[]) THEN coalesce(octet_length(extra), 0) ELSE 0 END AS size
        FROM outbox
        WHERE tenant = w.tenant AND outbox.aggregate_type = w.aggregate_type AND aggregate_id = w.key
            AND version <= $4
    ) AS o
) AS e


-- name: tagged
-- Which events of a stretch have which of these tags. $1 keys of tags, $2 after this seq, $3 up to this one
SELECT tag, seq FROM event_tag WHERE tag = ANY($1::uuid[]) AND seq > $2 AND seq <= $3


-- name: version_at
-- The last version of a stream that was recorded at or before a time.
-- $1 tenant, $2 aggregate type, $3 key, $4 milliseconds since 1970
SELECT version FROM outbox
WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3
    AND recorded_at <= timestamptz 'epoch' + $4::int8 * interval '1 millisecond'
ORDER BY version DESC LIMIT 1


-- name: waits
-- Whether a backend waits for a standby, its own work done. $1 its pid
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep')


-- name: keep_state
-- Keeps a state, and of the older ones of its handlers those at multiples of a stride. Nothing, where history was given
-- up since the state was folded. The write may be lost in a crash.
-- $1 tenant, $2 aggregate type, $3 key, $4 handlers, $5 version, $6 state, $7 partition, $8 its `rewound` as it was
-- folded, $9 stride
WITH lax AS (
    SELECT set_config('synchronous_commit', 'off', true)
), kept AS (
    INSERT INTO kept_state (tenant, aggregate_type, aggregate_id, handlers, version, event_id, rewound, folded)
    SELECT $1, $2, $3, $4, $5, o.id, l.rewound, $6
    FROM lax, partition_log l, outbox o
    WHERE l.p = $7 AND l.rewound = $8 AND l.alarm IS NULL
        AND o.tenant = $1 AND o.aggregate_type = $2 AND o.aggregate_id = $3 AND o.version = $5
    ON CONFLICT (tenant, aggregate_type, aggregate_id, handlers, version)
        DO UPDATE SET event_id = excluded.event_id, rewound = excluded.rewound, folded = excluded.folded
    RETURNING version
)
DELETE FROM kept_state
WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND handlers = $4
    AND (version < $5 AND version % $9 <> 0 OR rewound <> $8) AND EXISTS (SELECT FROM kept)


-- name: kept_claim
-- Takes one stream whose kept states are of other handlers than its type has; none where there is no other.
-- $1 tenant, $2 aggregate types, $3 their handlers, $4 seconds until another gateway may take it
WITH found AS (
    SELECT k.tenant, k.aggregate_type, k.aggregate_id
    FROM unnest($2::text[], $3::bytea[]) AS present (aggregate_type, handlers)
        JOIN kept_state k ON k.tenant = $1 AND k.aggregate_type = present.aggregate_type
            AND k.handlers <> present.handlers
    WHERE k.claimed_until IS NULL OR k.claimed_until < now()
    LIMIT 1 FOR UPDATE OF k SKIP LOCKED
)
UPDATE kept_state k SET claimed_until = now() + make_interval(secs => $4)
FROM found f
WHERE k.tenant = f.tenant AND k.aggregate_type = f.aggregate_type AND k.aggregate_id = f.aggregate_id
RETURNING k.aggregate_type, k.aggregate_id


-- name: kept_counts
-- How many streams of a tenant have kept states, by type and handlers, and what they take. $1 tenant
SELECT aggregate_type, handlers, count(DISTINCT aggregate_id) AS streams, count(*) AS states,
    sum(length(folded))::int8 AS bytes
FROM kept_state WHERE tenant = $1 GROUP BY aggregate_type, handlers ORDER BY aggregate_type


-- name: kept_drop
-- Drops what is kept of a stream by other handlers. $1 tenant, $2 aggregate type, $3 key, $4 handlers
DELETE FROM kept_state
WHERE tenant = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND handlers <> $4


-- name: kept_nearest
-- The newest kept state of a stream up to a version, if it holds.
-- $1 tenant, $2 aggregate type, $3 key, $4 handlers, $5 version, $6 partition
SELECT k.version, k.folded
FROM kept_state k
WHERE k.tenant = $1 AND k.aggregate_type = $2 AND k.aggregate_id = $3 AND k.handlers = $4 AND k.version <= $5
    AND k.rewound = (SELECT l.rewound FROM partition_log l WHERE l.p = $6 AND l.alarm IS NULL)
    AND k.event_id = (
        SELECT o.id FROM outbox o
        WHERE o.tenant = $1 AND o.aggregate_type = $2 AND o.aggregate_id = $3 AND o.version = k.version)
ORDER BY k.version DESC LIMIT 1


-- name: kept_sample
-- Kept states spread over all of them. $1 how many
SELECT k.tenant, k.aggregate_type, k.aggregate_id, k.handlers, k.version, k.folded
FROM kept_state k, outbox o, partition_log l
WHERE o.tenant = k.tenant AND o.aggregate_type = k.aggregate_type AND o.aggregate_id = k.aggregate_id
    AND o.version = k.version AND o.id = k.event_id AND l.p = o.p AND l.rewound = k.rewound AND l.alarm IS NULL
ORDER BY md5(k.aggregate_id || k.version || $2::text) LIMIT $1


-- name: kept_tenants
-- Those of some tenants of whose streams states are kept. $1 tenants
SELECT w.tenant FROM unnest($1::uuid[]) AS w(tenant)
WHERE EXISTS (SELECT FROM kept_state k WHERE k.tenant = w.tenant)
