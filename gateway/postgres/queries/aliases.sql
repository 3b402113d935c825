-- name: aliases_of
-- The aliases of an aggregate, oldest first. $1 tenant, $2 aggregate type, $3 key
SELECT kind, prefix, body, path, retired FROM alias
WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
    = $1::uuid::text || '/' || $2::text || '/' || $3::text
ORDER BY version, kind DESC, prefix, length(body), body, length(path), path


-- name: aliases_of_each
-- The aliases of aggregates that are shown, of each the oldest first. $1 tenant, $2 aggregate types, $3 keys
SELECT w.aggregate_type, w.key AS aggregate_id, a.kind, a.prefix, a.body, a.path
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w(aggregate_type, key, n) CROSS JOIN LATERAL (
    SELECT kind, prefix, body, path, version FROM alias
    WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
        = $1::uuid::text || '/' || w.aggregate_type || '/' || w.key AND NOT retired OFFSET 0) a
ORDER BY w.n, a.version, a.kind DESC, a.prefix, length(a.body), a.body, length(a.path), a.path


-- name: children_of
-- Names one level below a hash id, by number. $1 tenant, $2 prefix, $3 body, $4 what their paths begin with, up to the
-- last point and with it, $5 behind this number, $6 at most
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1 AND body = $3 AND prefix = $2 AND path ^@ $4 AND position('.' IN substr(path, length($4) + 1)) = 0
    AND substr(path, length($4) + 1)::numeric > $5
ORDER BY substr(path, length($4) + 1)::numeric LIMIT $6


-- name: begin_counters
-- For keys of which no number was given before. $1 tenant, $2 keys of public ids, $3 the greatest number given of each
INSERT INTO alias_counter (tenant, prefix, greatest)
SELECT $1, n.prefix, n.number FROM unnest($2::text[], $3::bigint[]) AS n(prefix, number)


-- name: begin_position
-- Makes sure that there is a row to lock. $1 tenant
INSERT INTO alias_position (tenant, version) VALUES ($1, 0) ON CONFLICT (tenant) DO NOTHING


-- name: begun
-- Which tenants have new aggregates. $1 tenants, $2 after which seq, one each
SELECT w.tenant FROM unnest($1::uuid[], $2::bigint[]) AS w(tenant, seq)
WHERE EXISTS (SELECT FROM outbox o WHERE o.tenant = w.tenant AND o.version = 1 AND o.seq > w.seq)


-- name: clear_aliases
-- $1 tenant
DELETE FROM alias WHERE tenant = $1


-- name: clear_counters
-- $1 tenant
DELETE FROM alias_counter WHERE tenant = $1


-- name: counter
-- The greatest number of a key of public ids. $1 tenant, $2 key
SELECT greatest FROM alias_counter WHERE tenant = $1 AND prefix = $2


-- name: created
-- Aggregates of these types in the order of their first events, each with the kinds of the names that it has, in one
-- text; null where it has none. $1 tenant, $2 after this seq, $3 aggregate types, $4 most rows
SELECT o.seq, o.aggregate_type, o.aggregate_id, (
    SELECT string_agg(kind, ' ') FROM alias
    WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
        = o.tenant::text || '/' || o.aggregate_type || '/' || o.aggregate_id) AS kinds
FROM outbox o
WHERE o.tenant = $1 AND o.version = 1 AND o.seq > $2 AND o.aggregate_type = ANY($3::text[])
ORDER BY o.seq LIMIT $4


-- name: digest
-- What the tables of a tenant hold, in a line: equal lines mean equal tables. $1 tenant
SELECT (SELECT count(*) FROM alias WHERE tenant = $1) AS names,
    (SELECT md5(string_agg(md5(a::text), '' ORDER BY a.path, a.body, a.prefix)) FROM alias a WHERE a.tenant = $1)
        AS aliases,
    (SELECT md5(string_agg(md5(c::text), '' ORDER BY c.prefix)) FROM alias_counter c WHERE c.tenant = $1) AS counters,
    (SELECT version FROM alias_position WHERE tenant = $1) AS version


-- name: claim_project_key
-- A project's key, unless it has one, or another project has this one: in the tenant, or anywhere where it was claimed
-- for all. One that was claimed by a project that was never written is free again after a minute. $1 tenant, $2 key,
-- $3 the project, $4 its aggregate type, $5 whether for the whole instance. What a statement gives
-- up is free for the next one.
WITH given_up AS (
    DELETE FROM project_key k
    WHERE (k.key = $2 AND (k.tenant = $1 OR k.everywhere) AND (k.tenant, k.aggregate_id) <> ($1, $3)
            AND k.claimed_at < now() - interval '1 minute'
        OR k.tenant = $1 AND k.aggregate_id = $3 AND k.key <> $2)
        AND NOT EXISTS (SELECT FROM outbox o WHERE o.tenant = k.tenant AND o.aggregate_type = $4
            AND o.aggregate_id = k.aggregate_id AND o.version = 1)
)
INSERT INTO project_key (tenant, key, aggregate_id, everywhere)
SELECT $1, $2, $3, $5
WHERE NOT EXISTS (SELECT FROM project_key k WHERE k.key = $2 AND (k.everywhere OR $5::boolean) AND k.tenant <> $1)
ON CONFLICT DO NOTHING


-- name: find_abbreviated
-- What a hash id may be short for: the root from its start, the path exactly. $1 tenant, $2 prefix or null for
-- any, $3 beginning of the body, $4 just after all bodies that begin so, $5 path, $6 aggregate type or null for
-- any, $7 most rows. Sorted as they are shown.
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1 AND path = $5 AND body >= $3 AND body < $4 AND kind = 'hash'
    AND ($2::text IS NULL OR prefix = $2) AND ($6::text IS NULL OR aggregate_type = $6)
ORDER BY prefix, body LIMIT $7


-- name: find_project
-- The project of this tenant that has a key, and the key that a project has. $1 tenant, $2 key, $3 the project
SELECT key, aggregate_id FROM project_key WHERE tenant = $1 AND (key = $2 OR aggregate_id = $3)


-- name: first_data
-- The data of creating events. $1 tenant, $2 aggregate types, $3 keys
SELECT o.aggregate_type, o.aggregate_id, o.payload
FROM unnest($2::text[], $3::text[]) AS w(aggregate_type, key) CROSS JOIN LATERAL (
    SELECT aggregate_type, aggregate_id, payload FROM outbox
    WHERE tenant = $1 AND aggregate_type = w.aggregate_type AND aggregate_id = w.key AND version = 1 LIMIT 1) o


-- name: find_alias
-- What an exact alias names. $1 tenant, $2 kind, $3 prefix or null for any, $4 body, $5 path, $6 aggregate type or
-- null for any. More than one row only where the prefix was left out.
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1 AND path = $5 AND body = $4 AND kind = $2
    AND ($3::text IS NULL OR prefix = $3) AND ($6::text IS NULL OR aggregate_type = $6)
ORDER BY prefix


-- name: give
-- Applies events that give names. Never ON CONFLICT: that a name is free was decided before its event was written; a
-- violation is a bug and must be loud. Raises the counters, never lowers one. $1 tenant, $2 version of the first event,
-- $3 of the last: all between them give names. Returns the keys of public ids that have no counter yet, and the greatest
-- number given of each.
WITH given AS (
    INSERT INTO alias (tenant, version, kind, prefix, body, path, aggregate_type, aggregate_id)
    SELECT o.tenant, o.version, n.name->>0, n.name->>1, n.name->>2, n.name->>3, n.name->>4, n.name->>5
    FROM outbox o CROSS JOIN LATERAL jsonb_array_elements(convert_from(o.payload, 'UTF8')::jsonb->'names') AS n(name)
    WHERE o.tenant = $1 AND o.aggregate_type = '_names' AND o.aggregate_id = 'global' AND o.version BETWEEN $2 AND $3
    RETURNING kind, prefix, body
), numbered AS (
    SELECT prefix, max(body::bigint) AS number FROM given WHERE kind = 'public' GROUP BY prefix
), raised AS (
    UPDATE alias_counter c SET greatest = greatest(c.greatest, n.number) FROM numbered n
    WHERE c.tenant = $1 AND c.prefix = n.prefix
    RETURNING c.prefix
)
SELECT prefix, number FROM numbered WHERE prefix NOT IN (SELECT prefix FROM raised)


-- name: greatest_child
-- The greatest number among the names beside one: those that differ from it in the last number alone. $1 tenant,
-- $2 prefix, $3 body, $4 what their paths begin with, up to the last point and with it
SELECT coalesce(max(substr(path, length($4) + 1)::numeric), 0) FROM alias
WHERE tenant = $1 AND body = $3 AND prefix = $2 AND path ^@ $4 AND position('.' IN substr(path, length($4) + 1)) = 0


-- name: hash_id_of_key
-- The oldest hash id that a key has as an aggregate of one of these types. $1 tenant, $2 aggregate types, $3 key
SELECT a.kind, a.prefix, a.body, a.path, a.aggregate_type, a.aggregate_id, a.retired
FROM unnest($2::text[]) AS asked (aggregate_type) JOIN alias a
    ON (a.tenant::text || '/' || a.aggregate_type || '/' || a.aggregate_id) COLLATE "C"
        = $1::uuid::text || '/' || asked.aggregate_type || '/' || $3::text
WHERE a.kind = 'hash'
ORDER BY a.version, a.prefix, length(a.body), a.body, length(a.path), a.path
LIMIT 1


-- name: holders
-- The aggregates that have these names already. $1 tenant, $2 prefixes, $3 bodies, $4 paths.
-- LIMIT makes it one look-up for each name: of a tenant that the statistics do not know yet, the planner would rather
-- compare each name with all of its rows (so too in public_ids_of, retire).
SELECT a.kind, a.prefix, a.body, a.path, a.aggregate_type, a.aggregate_id, a.retired
FROM unnest($2::text[], $3::text[], $4::text[]) AS n(prefix, body, path) CROSS JOIN LATERAL (
    SELECT * FROM alias
    WHERE tenant = $1 AND path = n.path AND body = n.body AND prefix = n.prefix LIMIT 1) a


-- name: list_aliases
-- Aliases of a tenant in the order in which people count. $1 tenant, $2 aggregate type, NULL for all
SELECT kind, prefix, body, path, aggregate_type, aggregate_id, retired FROM alias
WHERE tenant = $1 AND ($2::text IS NULL OR aggregate_type = $2)
ORDER BY prefix, length(body), body, length(path), path


-- name: lock_position
-- How many events are in the tables; no other transaction applies any until this one ends. $1 tenant
SELECT version FROM alias_position WHERE tenant = $1 FOR UPDATE


-- name: move_position
-- $1 tenant, $2 how many events are in the tables now
UPDATE alias_position SET version = $2 WHERE tenant = $1


-- name: note_scan
-- Every aggregate up to a seq has its names, by what a revision of the spec declares. An older revision has no say.
-- $1 tenant, $2 seq, $3 what is declared, $4 revision of the spec
INSERT INTO alias_scan AS s (tenant, seq, declared, spec_rev) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant) DO UPDATE SET
    seq = CASE WHEN s.declared = excluded.declared THEN greatest(s.seq, excluded.seq) ELSE excluded.seq END,
    declared = excluded.declared, spec_rev = excluded.spec_rev
WHERE s.spec_rev <= excluded.spec_rev


-- name: project_keys
-- The keys of projects. $1 tenant, $2 the projects
SELECT aggregate_id, key FROM project_key WHERE tenant = $1 AND aggregate_id = ANY ($2::text[])


-- name: public_and_hash
-- Public names in the order in which people count, each with the oldest hash id of its aggregate, null where that
-- has none. $1 tenant
SELECT p.prefix, p.body, p.aggregate_type, p.aggregate_id, h.prefix AS hash_prefix, h.body AS hash_body,
    h.path AS hash_path
FROM alias p LEFT JOIN LATERAL (
    SELECT prefix, body, path FROM alias
    WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
        = p.tenant::text || '/' || p.aggregate_type || '/' || p.aggregate_id AND kind = 'hash'
    ORDER BY version, length(path), path, length(body), body LIMIT 1) h ON true
WHERE p.tenant = $1 AND p.kind = 'public'
ORDER BY p.prefix, length(p.body), p.body


-- name: public_ids_of
-- The public ids of these aggregates. $1 tenant, $2 aggregate types, $3 keys. OFFSET is as LIMIT: see holders.
SELECT w.aggregate_type, w.key AS aggregate_id, a.prefix, a.body
FROM unnest($2::text[], $3::text[]) AS w(aggregate_type, key) CROSS JOIN LATERAL (
    SELECT prefix, body FROM alias
    WHERE (tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"
        = $1::uuid::text || '/' || w.aggregate_type || '/' || w.key AND kind = 'public' OFFSET 0) a


-- name: retire
-- Applies an event that retires or restores names. $1 tenant, $2 version of the event, $3 whether they are retired from
-- now on. By ctid, which stays: no other transaction changes names while the position is locked. Why LIMIT: see
-- holders.
UPDATE alias a SET retired = $3
FROM outbox o
    CROSS JOIN LATERAL jsonb_array_elements(convert_from(o.payload, 'UTF8')::jsonb->'names') AS n(name)
    CROSS JOIN LATERAL (
        SELECT ctid FROM alias
        WHERE tenant = $1 AND path = n.name->>3 AND body = n.name->>2 AND prefix = n.name->>1 LIMIT 1) it
WHERE o.tenant = $1 AND o.aggregate_type = '_names' AND o.aggregate_id = 'global' AND o.version = $2
    AND a.ctid = it.ctid


-- name: scanned
-- How far the tenant's aggregates were looked through, and how far its partition has come. $1 tenant, $2 p
SELECT l.seq AS head, coalesce(s.seq, 0) AS seq, coalesce(s.declared, '') AS declared,
    coalesce(s.spec_rev, 0) AS spec_rev
FROM partition_log l LEFT JOIN alias_scan s ON s.tenant = $1 WHERE l.p = $2


-- name: standing
-- How many events of a tenant's stream of names there are, and how many are in the tables. $1 tenant
SELECT coalesce((
        SELECT version FROM outbox
        WHERE tenant = $1 AND aggregate_type = '_names' AND aggregate_id = 'global'
        ORDER BY version DESC LIMIT 1), 0) AS length,
    coalesce((SELECT version FROM alias_position WHERE tenant = $1), 0) AS applied


-- name: taken
-- Which of these names aggregates without a parent have already. $1 tenant, $2 prefix, $3 bodies
SELECT body FROM alias WHERE tenant = $1 AND path = '' AND prefix = $2 AND body = ANY($3::text[])


-- name: unapplied
-- Events of a tenant's stream of names, oldest first. $1 tenant, $2 after this version, $3 most events
SELECT version, type FROM outbox
WHERE tenant = $1 AND aggregate_type = '_names' AND aggregate_id = 'global' AND version > $2
ORDER BY version LIMIT $3
