-- name: begin_deletion
-- A tenant is to go; nothing where it is going already. $1 tenant, $2 the clock's revision
INSERT INTO tenant_deletion (tenant, name, handle, revision, events)
SELECT id, name, handle, $2, coalesce((SELECT events FROM tenant_storage WHERE tenant = id), 0) FROM tenant WHERE id = $1
ON CONFLICT (tenant) DO NOTHING


-- name: begin_reacting
-- A tenant's events are looked at for timers and sagas from here on, unless they are already: behind the last event of its
-- partition. $1 tenant, $2 partition
INSERT INTO reacting (tenant, p, seq, mark)
SELECT $1, $2, coalesce(last.seq, 0), coalesce(last.mark, '\x00000000')
FROM (SELECT) AS one LEFT JOIN (
    SELECT seq, substr(digest, 1, 4) AS mark FROM outbox WHERE p = $2 ORDER BY seq DESC LIMIT 1
) AS last ON true
ON CONFLICT DO NOTHING


-- name: add_tags
-- Gives events tags that they lack. $1 keys of tags, $2 the seq of an event for each. Returns a row for each given
INSERT INTO event_tag (tag, seq)
SELECT DISTINCT w.tag, w.seq FROM unnest($1::uuid[], $2::bigint[]) AS w(tag, seq)
WHERE NOT EXISTS (SELECT FROM event_tag e WHERE e.tag = w.tag AND e.seq = w.seq)
ON CONFLICT DO NOTHING
RETURNING 1


-- name: changed_specs
-- The newest revision of each tenant whose spec changed after a revision of the clock, and who that is.
-- $1 that revision.
SELECT DISTINCT ON (s.tenant) s.tenant, s.revision, s.document, t.name, t.handle, t.salt
FROM spec_revision s JOIN tenant t ON t.id = s.tenant
WHERE s.changed > $1
ORDER BY s.tenant, s.revision DESC


-- name: claim_events
-- Events of a stretch that may claim or release unique values, in the order of their commits. $1 p, $2 tenant, $3 after
-- this seq, $4 up to this one, $5 aggregate types, $6 event types
SELECT seq, aggregate_type, aggregate_id, version, type, payload, revision, id, actor_type, actor_id, target_type,
    target_id, correlation_id, causation_id, extra,
    (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms
FROM outbox
WHERE p = $1 AND seq > $3 AND seq <= $4 AND tenant = $2 AND aggregate_type = ANY($5::text[]) AND type = ANY($6::text[])
ORDER BY seq


-- name: count_aggregates
-- How many aggregates of a type there are, at most $3. $1 tenant, $2 aggregate type
SELECT count(*)
FROM (SELECT FROM outbox WHERE tenant = $1 AND aggregate_type = $2 AND version = 1 LIMIT $3) AS found


-- name: count_behind
-- How many gateways may still act on an older catalog. $1 the clock's revision, $2 seconds of silence after
-- which a gateway acts on nothing.
SELECT count(*) FROM catalog_reader WHERE revision < $1 AND seen_at > now() - $2::float8 * interval '1 second'


-- name: count_of_types
-- How many events aggregates of these types have. $1 tenant, $2 aggregate types
SELECT count(*) FROM outbox WHERE tenant = $1 AND aggregate_type = ANY($2::text[])


-- name: create_instance
-- The identity of this instance, which never changes. $1 id, $2 partition count, $3 partition rule.
INSERT INTO instance (id, partitions, partition_rule) VALUES ($1, $2, $3)


-- name: create_key
-- A key, unless its handle is taken. $1 handle, $2 tenant, $3 name, $4 scope, $5 digest, $6 lifetime or null,
-- $7 the key it replaces or null, $8 the clock's revision, $9 what it is narrowed to or null, $10 the key that made it
-- or null: it ends no later. Returns when it expires, or no row.
INSERT INTO api_key (handle, tenant, name, scope, digest, expires_at, rotated_from, changed, narrowed_to, made_by)
VALUES ($1, $2, $3, $4, $5,
    least(now() + $6::interval, (SELECT expires_at FROM api_key WHERE handle = $10)), $7, $8, $9::text[], $10)
ON CONFLICT (handle) DO NOTHING
RETURNING expires_at


-- name: create_partitions
-- Every partition at its beginning: epoch 1, nothing committed. $1 partition count.
INSERT INTO partition_log (p, epoch, seq, chain, mode)
SELECT p, 1, 0, '', 'redis' FROM generate_series(0, $1::int - 1) AS p


-- name: create_schema_version
-- Which migrations were applied, and what each said.
CREATE TABLE IF NOT EXISTS schema_version (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    digest     bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)


-- name: create_source_key
-- A mapping, unless there is one. $1 scope's id, $2 source id, $3 key, $4 aggregate type or null. Returns true, or no
-- row.
INSERT INTO source_key (scope_id, source_id, key, aggregate_type) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
RETURNING true


-- name: create_source_keys
-- Mappings, each unless there is one. $1 scope's id, $2 source ids, $3 their keys, $4 aggregate type or null. Returns
-- those that it made.
INSERT INTO source_key (scope_id, source_id, key, aggregate_type)
SELECT $1, made.source_id, made.key, $4 FROM unnest($2::text[], $3::text[]) AS made (source_id, key)
ON CONFLICT DO NOTHING
RETURNING source_id, key


-- name: create_source_scope
-- A scope that is seen for the first time, unless another is quicker. $1 tenant, $2 source, $3 scope.
INSERT INTO source_scope (tenant, source, scope, origin, incarnation)
SELECT $1, $2, $3, $3, coalesce(max(incarnation) + 1, 0)
FROM source_scope WHERE tenant = $1 AND source = $2 AND origin = $3
ON CONFLICT DO NOTHING


-- name: create_spec
-- The next revision of a tenant's spec, which counts among what the tenant stores: with its row as one of the outbox
-- (log/storage.py). $1 tenant, $2 revision, $3 document, $4 digest, $5 the clock's revision.
WITH counted AS (UPDATE tenant SET spec_bytes = spec_bytes + 700 + octet_length($3::bytea) WHERE id = $1)
INSERT INTO spec_revision (tenant, revision, document, digest, changed) VALUES ($1, $2, $3, $4, $5)


-- name: create_tenant
-- A tenant, unless its handle is taken. $1 id, $2 name, $3 handle. Returns true, or no row.
INSERT INTO tenant (id, name, handle) VALUES ($1, $2, $3)
ON CONFLICT (handle) DO NOTHING
RETURNING true


-- name: create_ticket
-- A ticket, unless its key has as many as it may. $1 digest, $2 the key's handle, $3 path, $4 seconds, $5 most.
-- Returns true, or no row.
INSERT INTO ticket (digest, key, path, expires_at)
SELECT $1, $2, $3, now() + $4::float8 * interval '1 second'
WHERE (SELECT count(*) FROM ticket WHERE key = $2 AND expires_at > now()) < $5::int
RETURNING true


-- name: crowd_of_keys
-- How many keys of a tenant are alive, and how many have ended. $1 tenant
SELECT count(*) FILTER (WHERE alive) AS alive, count(*) FILTER (WHERE NOT alive) AS ended
FROM (SELECT revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) AS alive FROM api_key WHERE tenant = $1) k


-- name: current_spec
-- What is deployed for a tenant. $1 tenant. No row: nothing yet.
SELECT revision, document FROM spec_revision WHERE tenant = $1 ORDER BY revision DESC LIMIT 1


-- name: deletable
-- Tenants to be emptied now: every gateway that still acts knows that they are going. $1 seconds of silence after
-- which a gateway acts on nothing
SELECT tenant FROM tenant_deletion d
WHERE finished_at IS NULL AND NOT EXISTS (
    SELECT FROM catalog_reader WHERE revision < d.revision AND seen_at > now() - $1::float8 * interval '1 second')
ORDER BY requested_at


-- name: delete_step
-- Deletes at most $2 rows of a tenant that is going. $1 tenant. Returns whether nothing is left.
SELECT delete_tenant_step($1, $2)


-- name: delete_tags
-- Deletes tags of a tenant that is going. $1 tenant, $2 keys of tags, $3 the seq of an event for each. How many
SELECT delete_tags_step($1, $2::uuid[], $3::bigint[])


-- name: doomed_streams
-- Some streams of a tenant that is going, those that a step deletes first. $1 tenant, $2 how many rows are looked at
SELECT DISTINCT aggregate_type, aggregate_id FROM (
    SELECT aggregate_type, aggregate_id FROM outbox WHERE tenant = $1 AND aggregate_type > '' LIMIT $2
) AS next


-- name: end_epoch
-- Ends the epoch of a partition: nothing sequenced in it commits after this, and the next one begins without a memory of
-- tags. $1 p
UPDATE partition_log SET epoch = epoch + 1, owner = '' WHERE p = $1


-- name: end_key
-- Ends a key after its grace, never later than it ends anyway, and those that it made, and they. $1 handle, $2 grace,
-- $3 the clock's revision.
WITH RECURSIVE ending AS (
    SELECT handle FROM api_key WHERE handle = $1
    UNION
    SELECT k.handle FROM api_key k JOIN ending ON k.made_by = ending.handle
)
UPDATE api_key SET expires_at = least(expires_at, now() + $2::interval), changed = $3
WHERE handle IN (SELECT handle FROM ending)


-- name: adopt_types
-- Gives mappings that have none the type of their aggregates. $1 tenant, $2 sources, $3 scopes, $4 source ids, $5 type
UPDATE source_key k SET aggregate_type = $5
FROM unnest($2::text[], $3::text[], $4::text[]) AS asked (source, scope, source_id)
JOIN source_scope s ON s.tenant = $1 AND s.source = asked.source AND s.scope = asked.scope
WHERE k.scope_id = s.id AND k.source_id = asked.source_id AND k.aggregate_type IS NULL


-- name: every_tenant
-- All tenants by name, without the one of name $1.
SELECT id, name, handle FROM tenant WHERE name <> $1 ORDER BY name


-- name: export_sources
-- A page of what a source's ids stand for, in a fixed order. $1 tenant, $2 source, $3 scope's id and $4 source id behind
-- which it begins, $5 how many
SELECT s.id AS scope_id, s.scope, k.source_id, k.key, k.aggregate_type
FROM source_scope s JOIN source_key k ON k.scope_id = s.id
WHERE s.tenant = $1 AND s.source = $2 AND (s.id, k.source_id) > ($3, $4)
ORDER BY s.id, k.source_id LIMIT $5


-- name: end_tickets
-- Ends what has expired. $1 how many at most; those that another gateway ends are passed over.
DELETE FROM ticket WHERE digest IN (
    SELECT digest FROM ticket WHERE expires_at <= now() LIMIT $1 FOR UPDATE SKIP LOCKED)


-- name: find_by_content
-- Aggregates of a type whose last record has this content ($5), and this context ($6) if that is not null, by key.
-- $1 tenant, $2 aggregate type, $3 the key behind which it begins, $4 how many
SELECT o.aggregate_id AS key, o.id FROM outbox o
WHERE o.tenant = $1 AND substr(o.extra, 26, 64) = $5::bytea AND o.aggregate_type = $2 AND o.aggregate_id > $3
    AND substr(o.extra, 1, 25) = '\x7b22246964656e74697479223a7b22636f6e74656e74223a22'::bytea
    AND ($6::bytea IS NULL OR substr(o.extra, 102, 1) = '\x22'::bytea AND substr(o.extra, 103, 64) = $6)
    AND NOT EXISTS (
        SELECT FROM outbox later WHERE later.tenant = o.tenant AND later.aggregate_type = o.aggregate_type
            AND later.aggregate_id = o.aggregate_id AND later.version > o.version
            AND substr(later.extra, 1, 25) = '\x7b22246964656e74697479223a7b22636f6e74656e74223a22'::bytea)
ORDER BY o.aggregate_id LIMIT $4


-- name: find_by_context
-- The same by context ($5) alone.
SELECT o.aggregate_id AS key, o.id FROM outbox o
WHERE o.tenant = $1 AND substr(o.extra, 103, 64) = $5::bytea AND o.aggregate_type = $2 AND o.aggregate_id > $3
    AND substr(o.extra, 1, 25) = '\x7b22246964656e74697479223a7b22636f6e74656e74223a22'::bytea AND substr(o.extra, 102, 1) = '\x22'::bytea
    AND NOT EXISTS (
        SELECT FROM outbox later WHERE later.tenant = o.tenant AND later.aggregate_type = o.aggregate_type
            AND later.aggregate_id = o.aggregate_id AND later.version > o.version
            AND substr(later.extra, 1, 25) = '\x7b22246964656e74697479223a7b22636f6e74656e74223a22'::bytea)
ORDER BY o.aggregate_id LIMIT $4


-- name: find_keys
-- Living keys and their tenants. $1 digests. No row: never minted, revoked or expired. `remaining_s` is null
-- where it never expires: counted here, so that gateways whose clocks differ agree.
SELECT k.digest, k.handle, k.scope, k.narrowed_to, t.id AS tenant_id, t.name AS tenant, t.handle AS tenant_handle,
       extract(epoch FROM k.expires_at - now())::float8 AS remaining_s,
       (SELECT revision FROM catalog_clock) AS revision
FROM api_key k JOIN tenant t ON t.id = k.tenant
WHERE k.digest = ANY ($1::bytea[]) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())


-- name: find_source_ids
-- What a key is called elsewhere, in a fixed order. $1 tenant, $2 key.
SELECT source, scope, source_id, aggregate_type FROM source_map
WHERE tenant = $1 AND key = $2
ORDER BY source COLLATE "C", scope COLLATE "C", source_id COLLATE "C"


-- name: find_source_key
-- The key of a source id. $1 tenant, $2 source, $3 scope, $4 source id. No row: never seen.
SELECT key FROM source_map WHERE tenant = $1 AND source = $2 AND scope = $3 AND source_id = $4


-- name: find_source_keys
-- The keys of source ids of one scope. $1 tenant, $2 source, $3 scope, $4 source ids. No row for one never seen.
SELECT source_id, key FROM source_map WHERE tenant = $1 AND source = $2 AND scope = $3 AND source_id = ANY ($4::text[])


-- name: find_mappings
-- What source ids stand for. $1 tenant, $2 sources, $3 scopes, $4 source ids; a row for each that is mapped, by its place
-- LIMIT makes it one look-up for each: see `holders` of the aliases.
SELECT asked.n, found.key, found.aggregate_type
FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS asked (source, scope, source_id, n)
CROSS JOIN LATERAL (
    SELECT k.key, k.aggregate_type FROM source_scope s JOIN source_key k ON k.scope_id = s.id
    WHERE s.tenant = $1 AND s.source = asked.source AND s.scope = asked.scope AND k.source_id = asked.source_id
    LIMIT 1
) AS found


-- name: find_source_scope
-- What keys are derived from. $1 tenant, $2 source, $3 scope. No row: never seen.
SELECT id, origin, incarnation FROM source_scope WHERE tenant = $1 AND source = $2 AND scope = $3


-- name: forget_claims
-- Ends what aggregates of these types hold. $1 tenant, $2 aggregate types
DELETE FROM unique_claim WHERE tenant = $1 AND aggregate_type = ANY($2::text[])


-- name: forget_keys
-- Deletes keys that ended. $1 tenant, $2 how many at most
SELECT forget_keys($1, $2)


-- name: gone_tenants
-- Those of $1 that are deleted, with all that they had.
SELECT tenant FROM tenant_deletion WHERE tenant = ANY ($1::uuid[]) AND finished_at IS NOT NULL


-- name: hold_claims
-- Who holds which unique value from here on. $1 tenant; then an item each: $2 values, $3 aggregate types, $4 keys,
-- $5 names, $6 scopes, $7 seqs
INSERT INTO unique_claim (tenant, value, aggregate_type, aggregate_id, name, scope, seq)
SELECT $1, h.* FROM unnest($2::bytea[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[]) AS h


-- name: imported_appended
-- The events of these records are appended. $1 tenant, $2 aggregate type, $3 keys, $4 the count of records of each
UPDATE imported i SET appended = true FROM unnest($3::text[], $4::int[]) AS done (key, times)
WHERE i.tenant = $1 AND i.aggregate_type = $2 AND i.key = done.key AND i.times = done.times


-- name: imported_counts
-- How many records each of these said. $1 tenant, $2 aggregate type, $3 keys
SELECT key, times FROM imported WHERE tenant = $1 AND aggregate_type = $2 AND key = ANY ($3::text[])


-- name: imported_found
-- Aggregates with one of these refs, and for each content those that say it and may be taken, the one without a ref
-- first. $1 tenant, $2 aggregate type, $3 the import, $4 refs, $5 contents, $6 at most how many of each, $7 the import's
-- mark of contents without a ref
SELECT key, ref, content, times, appended, $3::uuid = ANY (imports) AS taken, $7::uuid = ANY (imports) AS bare
FROM imported
WHERE tenant = $1 AND aggregate_type = $2 AND ref = ANY ($4::text[])
UNION
SELECT f.* FROM unnest($5::bytea[], $6::int[]) AS asked (content, most) CROSS JOIN LATERAL (
    SELECT key, ref, content, times, appended, $3::uuid = ANY (imports) AS taken, $7::uuid = ANY (imports) AS bare
    FROM imported
    WHERE tenant = $1 AND aggregate_type = $2 AND content = asked.content
        AND (ref IS NULL OR (appended AND NOT $3::uuid = ANY (imports)))
    ORDER BY ref IS NOT NULL, NOT $7::uuid = ANY (imports), ref, key LIMIT asked.most + 2
) f


-- name: imported_kept
-- What an import leaves of its aggregates. $1 tenant, $2 aggregate type, $3 keys, $4 refs, $5 contents, $6 counts of
-- records, $7 whether the event of the last one is appended, $8 the import's mark of each
INSERT INTO imported AS i (tenant, aggregate_type, key, ref, content, times, appended, imports)
SELECT $1, $2, k.key, k.ref, k.content, k.times, k.appended, ARRAY[k.mark]
FROM unnest($3::text[], $4::text[], $5::bytea[], $6::int[], $7::boolean[], $8::uuid[])
    AS k (key, ref, content, times, appended, mark)
ON CONFLICT (tenant, aggregate_type, key) DO UPDATE
SET ref = EXCLUDED.ref, content = EXCLUDED.content, times = EXCLUDED.times, appended = EXCLUDED.appended,
    imports = CASE WHEN EXCLUDED.imports[1] = ANY (i.imports) THEN i.imports
        ELSE (EXCLUDED.imports || i.imports)[1:8] END


-- name: imported_locked
-- One import at a time looks and decides. $1 tenant, $2 aggregate type
SELECT pg_advisory_xact_lock(hashtextextended('sluice.import ' || $1::uuid || ' ' || $2::text, 0))


-- name: imported_marked
-- These refs stand in an import. $1 tenant, $2 aggregate type, $3 the import, $4 refs
UPDATE imported SET imports = (array_prepend($3::uuid, imports))[1:8]
WHERE tenant = $1 AND aggregate_type = $2 AND ref = ANY ($4::text[]) AND NOT $3::uuid = ANY (imports)


-- name: in_use
-- Which of these a tenant has stored events of. $1 tenant; then an item each: $2 kind, $3 the name of an
-- aggregate type or singleton or a prefix of aliases, $4 of an event type or null. Returns their places n, from 1,
-- and of a key of public ids which other one was given.
-- The types that have events are found by skipping through the index: a singleton may have a stream of a type
-- that no spec declares any more.
WITH RECURSIVE stored AS (
    (SELECT aggregate_type FROM outbox WHERE tenant = $1 ORDER BY aggregate_type LIMIT 1)
    UNION ALL
    SELECT (SELECT o.aggregate_type FROM outbox o
            WHERE o.tenant = $1 AND o.aggregate_type > stored.aggregate_type
            ORDER BY o.aggregate_type LIMIT 1)
    FROM stored WHERE stored.aggregate_type IS NOT NULL
)
SELECT asked.n,
    CASE asked.kind WHEN 'public_key' THEN
        (SELECT min(c.prefix) FROM alias_counter c WHERE c.tenant = $1 AND c.prefix <> asked.name
            AND NOT EXISTS (SELECT FROM project_key k WHERE k.tenant = $1 AND k.key = c.prefix))
    END AS given
FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS asked (kind, name, event_type, n)
WHERE CASE asked.kind
    WHEN 'aggregate_type' THEN asked.name IN (SELECT aggregate_type FROM stored)
    WHEN 'event_type' THEN EXISTS (
        SELECT FROM outbox o
        WHERE o.tenant = $1 AND o.aggregate_type = asked.name AND o.type = asked.event_type)
    WHEN 'singleton' THEN EXISTS (
        SELECT FROM stored JOIN outbox o ON o.aggregate_type = stored.aggregate_type
        WHERE o.tenant = $1 AND o.aggregate_id = asked.name)
    WHEN 'public_key' THEN EXISTS (SELECT FROM alias_counter c WHERE c.tenant = $1 AND c.prefix <> asked.name
        AND NOT EXISTS (SELECT FROM project_key k WHERE k.tenant = $1 AND k.key = c.prefix))
END
ORDER BY asked.n


-- name: list_keys
-- Keys with their tenants and what they are worth now. $1 one handle or null, $2 one tenant's id or null.
SELECT k.handle, k.name, k.scope, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.rotated_from,
       k.narrowed_to, k.made_by,
       t.id AS tenant_id, t.name AS tenant, t.handle AS tenant_handle,
       CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked'
            WHEN k.expires_at <= now() THEN 'expired'
            ELSE 'live' END AS status
FROM api_key k JOIN tenant t ON t.id = k.tenant
WHERE ($1::text IS NULL OR k.handle = $1) AND ($2::uuid IS NULL OR k.tenant = $2)
ORDER BY t.name, k.created_at, k.handle


-- name: list_tenants
-- Tenants as they stand, by name; those that are gone only by their ids. $1 one id or null; else those behind name $2,
-- at most $3, without the one of name $4.
SELECT coalesce(t.id, d.tenant) AS id, coalesce(t.name, d.name) AS name, coalesce(t.handle, d.handle) AS handle,
    CASE WHEN d.finished_at IS NOT NULL THEN 'deleted' WHEN d.tenant IS NOT NULL THEN 'deleting'
        WHEN t.suspended_at IS NOT NULL THEN 'suspended' ELSE 'active' END AS status,
    t.created_at, d.requested_at, d.events, d.deleted, d.finished_at
FROM tenant t FULL JOIN tenant_deletion d ON d.tenant = t.id
WHERE CASE WHEN $1::uuid IS NOT NULL THEN coalesce(t.id, d.tenant) = $1 ELSE t.name > $2 END
    AND coalesce(t.name, '') <> $4
ORDER BY t.name LIMIT $3


-- name: living_keys
-- Which of these keys are alive, and no tenant's that is suspended. $1 handles.
SELECT k.handle FROM api_key k JOIN tenant t ON t.id = k.tenant
WHERE k.handle = ANY ($1::text[]) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
    AND t.suspended_at IS NULL


-- name: living_relative
-- The predecessor or successor of a key that still lives beside it. $1 handle.
SELECT other.handle
FROM api_key k JOIN api_key other ON other.rotated_from = k.handle OR other.handle = k.rotated_from
WHERE k.handle = $1 AND other.revoked_at IS NULL AND (other.expires_at IS NULL OR other.expires_at > now())
LIMIT 1


-- name: made_keys
-- How many living keys a key has made. $1 its handle
SELECT count(*) FROM api_key
WHERE made_by = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())


-- name: mapped_source_key
-- What a source id of a scope stands for. $1 scope's id, $2 source id.
SELECT key FROM source_key WHERE scope_id = $1 AND source_id = $2


-- name: mapped_source_keys
-- What source ids of a scope stand for. $1 scope's id, $2 source ids.
SELECT source_id, key FROM source_key WHERE scope_id = $1 AND source_id = ANY ($2::text[])


-- name: note_use
-- Keys were used just now; those that another gateway has noted, or is noting, are passed over.
-- $1 handles, $2 seconds within which once is enough.
UPDATE api_key SET last_used_at = now()
WHERE handle IN (
    SELECT handle FROM api_key
    WHERE handle = ANY ($1::text[])
      AND (last_used_at IS NULL OR last_used_at <= now() - $2::float8 * interval '1 second')
    FOR UPDATE SKIP LOCKED)


-- name: missing_tags
-- Which events lack a tag. $1 keys of tags, $2 the seq of an event for each
SELECT w.tag, w.seq FROM unnest($1::uuid[], $2::bigint[]) AS w(tag, seq)
WHERE NOT EXISTS (SELECT FROM event_tag e WHERE e.tag = w.tag AND e.seq = w.seq)


-- name: open_closing
-- Closes for appends what a document does not declare any more. $1 tenant, $2 document, $3 seconds at most.
INSERT INTO spec_closing (tenant, document, expires_at)
VALUES ($1, $2, now() + $3::float8 * interval '1 second')
ON CONFLICT (tenant) DO UPDATE SET document = excluded.document, expires_at = excluded.expires_at


-- name: page_of_keys
-- The keys of a tenant in the order in which they were made, as list_keys has them. $1 tenant, $2 the handle behind which
-- they are or null, $3 how many
SELECT k.handle, k.name, k.scope, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.rotated_from,
       k.narrowed_to, k.made_by, t.name AS tenant,
       CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked'
            WHEN k.expires_at <= now() THEN 'expired'
            ELSE 'live' END AS status
FROM api_key k JOIN tenant t ON t.id = k.tenant
WHERE k.tenant = $1 AND ($2::text IS NULL
    OR (k.created_at, k.handle) > (SELECT created_at, handle FROM api_key WHERE handle = $2 AND tenant = $1))
ORDER BY k.created_at, k.handle LIMIT $3


-- name: redeem_ticket
-- Ends a ticket; its path and its key, which is alive. $1 digest. No row: used, expired, or none.
WITH used AS (DELETE FROM ticket WHERE digest = $1 RETURNING key, path, expires_at)
SELECT used.path, k.handle, k.scope, k.narrowed_to, t.id AS tenant_id, t.name AS tenant, t.handle AS tenant_handle
FROM used JOIN api_key k ON k.handle = used.key JOIN tenant t ON t.id = k.tenant
WHERE used.expires_at > now() AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())


-- name: references
-- Which of these a tenant's events name as actor or target. $1 tenant; then an item each: $2 kind, $3 name; $4 how many
-- events are looked at, null: all. Returns their places n, from 1.
SELECT DISTINCT asked.n
FROM (SELECT actor_type, actor_id, target_type, target_id FROM outbox WHERE tenant = $1 LIMIT $4) AS o
JOIN unnest($2::text[], $3::text[]) WITH ORDINALITY AS asked (kind, name, n)
  ON CASE asked.kind
         WHEN 'agent_type' THEN o.actor_type = asked.name
         WHEN 'target_type' THEN o.target_type = asked.name
         ELSE asked.name IN (o.actor_id, o.target_id)
     END
ORDER BY asked.n


-- name: rename_source_scope
-- Another name for a scope. $1 tenant, $2 source, $3 scope, $4 its new name. Returns true, or no row.
UPDATE source_scope SET scope = $4 WHERE tenant = $1 AND source = $2 AND scope = $3
RETURNING true


-- name: report_reader
-- A gateway is there and has followed the clock up to a revision. Gateways that were killed are forgotten after a
-- day: each start has an id of its own. $1 gateway, $2 revision.
WITH forgotten AS (
    DELETE FROM catalog_reader WHERE gateway IN (
        SELECT gateway FROM catalog_reader
        WHERE seen_at < now() - interval '1 day' AND gateway <> $1 FOR UPDATE SKIP LOCKED)
)
INSERT INTO catalog_reader (gateway, revision, seen_at) VALUES ($1, $2, now())
ON CONFLICT (gateway) DO UPDATE SET revision = excluded.revision, seen_at = excluded.seen_at


-- name: resting_tenants
-- Tenants whose requests are refused; among them those that were deleted of late: what was under way may still come.
SELECT id FROM tenant WHERE suspended_at IS NOT NULL
UNION SELECT tenant FROM tenant_deletion WHERE finished_at IS NULL OR finished_at > now() - interval '1 hour'


-- name: revoke_key
-- Ends a key now, and those that it made, and they. $1 handle, $2 the clock's revision.
WITH RECURSIVE ended AS (
    SELECT handle FROM api_key WHERE handle = $1
    UNION
    SELECT k.handle FROM api_key k JOIN ended ON k.made_by = ended.handle
)
UPDATE api_key SET revoked_at = now(), changed = $2
WHERE handle IN (SELECT handle FROM ended) AND revoked_at IS NULL


-- name: revoke_keys_of
-- Ends the keys of a tenant now. $1 tenant, $2 the clock's revision.
UPDATE api_key SET revoked_at = now(), changed = $2 WHERE tenant = $1 AND revoked_at IS NULL


-- name: spec_history
-- The revisions of a tenant's spec, the newest first. $1 tenant, $2 the revision before which they are, $3 how many
SELECT revision, deployed_at, octet_length(document) AS bytes
FROM spec_revision WHERE tenant = $1 AND revision < $2 ORDER BY revision DESC LIMIT $3


-- name: spec_revision
-- One revision of a tenant's spec. $1 tenant, $2 revision. No row: there never was one.
SELECT revision, document FROM spec_revision WHERE tenant = $1 AND revision = $2


-- name: stored_events
-- A page of the events of an aggregate type, in the order of their keys. $1 tenant, $2 aggregate type, $3 and $4 the key
-- and version behind which it begins, $5 the event types whose payloads are wanted, $6 how many
SELECT seq, aggregate_id, version, type, CASE WHEN type = ANY ($5) THEN payload END AS payload, revision, id, actor_type,
    actor_id, target_type, target_id, correlation_id, causation_id, extra,
    (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms
FROM outbox
WHERE tenant = $1 AND aggregate_type = $2 AND (aggregate_id, version) > ($3, $4)
ORDER BY aggregate_id, version
LIMIT $6


-- name: history_page
-- Events of an aggregate type, whole, in the order of their keys. $1 tenant, $2 aggregate type, $3 and $4 the key and
-- version behind which it begins, $5 how many
SELECT aggregate_id, version, type, payload, revision, id, actor_type, actor_id, target_type, target_id,
    correlation_id, causation_id, extra, (date_part('epoch', recorded_at) * 1000)::int8 AS recorded_at_ms
FROM outbox
WHERE tenant = $1 AND aggregate_type = $2 AND (aggregate_id, version) > ($3, $4)
ORDER BY aggregate_id, version
LIMIT $5


-- name: history_length
-- How many events there are of these aggregate types. $1 tenant, $2 aggregate types
SELECT count(*) FROM outbox WHERE tenant = $1 AND aggregate_type = ANY($2::text[])


-- name: spec_documents
-- Former revisions of a tenant's spec, the newest first. $1 tenant, $2 before this revision, $3 how many
SELECT revision, document FROM spec_revision WHERE tenant = $1 AND revision < $2 ORDER BY revision DESC LIMIT $3


-- name: suspend_tenant
-- Whose requests are refused from now on, or taken again. $1 tenant, $2 which
UPDATE tenant SET suspended_at = CASE WHEN $2 THEN coalesce(suspended_at, now()) END WHERE id = $1


-- name: tenant_place
-- The partition of a tenant's events (NULL: it has none), how far it is committed, and the tenant's salt. $1 tenant
SELECT place.p, log.seq, t.salt
FROM tenant t
    LEFT JOIN LATERAL (SELECT p FROM outbox WHERE tenant = t.id ORDER BY tenant, aggregate_type LIMIT 1) place ON true
    LEFT JOIN partition_log log ON log.p = place.p
WHERE t.id = $1
