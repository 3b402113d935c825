-- name: discard
-- Ends what is in quarantine, and the request of a batch with the last row that needs it. $1 tenant, $2 ids.
WITH gone AS (
    DELETE FROM webhook_delivery
    WHERE tenant = $1 AND id = ANY($2::uuid[]) AND verdict = 'quarantined'
    RETURNING id, request, source, delivery_id
), whole AS (
    DELETE FROM webhook_delivery w USING (SELECT DISTINCT request FROM gone) g
    WHERE w.tenant = $1 AND w.id = g.request AND w.verdict = 'batch'
      AND NOT EXISTS (
          SELECT FROM webhook_delivery o
          WHERE o.tenant = w.tenant AND o.request = w.id AND o.id > w.id
            AND o.id NOT IN (SELECT id FROM gone)
      )
)
SELECT id, source, delivery_id FROM gone ORDER BY id


-- name: expire
-- Ends what was kept long enough, on one page: a bounded number of rows behind an id. What is in quarantine has a time
-- of its own, and the request of a batch stays as long as one of its items. Postgres' clock decides, since a gateway's
-- may be ahead: ids begin with their time in ms, and the first one to keep is made of it. $1 seconds to keep, $2 seconds
-- to keep what is in quarantine, $3 id after which to look, $4 how many rows. Gives how many were looked at, the last
-- one, and how many of them ended that were in quarantine.
WITH kept AS MATERIALIZED (
    SELECT rpad(lpad(to_hex(greatest(((extract(epoch FROM now()) - keep_s) * 1000)::bigint, 0)), 12, '0'), 32, '0')::uuid
        AS first, n
    FROM unnest(ARRAY[$1::float8, greatest($1::float8, $2::float8)]) WITH ORDINALITY AS w(keep_s, n)
), page AS MATERIALIZED (
    SELECT id, verdict FROM webhook_delivery
    WHERE id > $3::uuid AND id < (SELECT first FROM kept WHERE n = 1)
    ORDER BY id LIMIT $4
), ended AS (
    DELETE FROM webhook_delivery WHERE id = ANY(ARRAY(
        SELECT id FROM page
        WHERE CASE WHEN verdict = 'quarantined' THEN id < (SELECT first FROM kept WHERE n = 2)
            -- As a value and not EXISTS: so it is one look into the index for each, whatever the planner guesses.
            ELSE (SELECT true FROM webhook_delivery q
                WHERE q.request = page.id AND q.verdict = 'quarantined' LIMIT 1) IS NULL END
    ))
    RETURNING verdict
)
SELECT (SELECT count(*) FROM page) AS looked_at, (SELECT id FROM page ORDER BY id DESC LIMIT 1) AS last,
    (SELECT count(*) FROM ended WHERE verdict = 'quarantined') AS quarantined


-- name: keep
-- Many rows at once; one that is in quarantine already is left out. Arrays in the order of the columns.
INSERT INTO webhook_delivery (id, tenant, request, item, received_at, took_ms, secret, source, delivery_id,
                              digest, verdict, event_id, target, headers, body, body_bytes, reason, error)
SELECT *
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::timestamptz[], $6::int[], $7::int[], $8::text[],
            $9::text[], $10::bytea[], $11::text[], $12::uuid[], $13::bytea[], $14::bytea[], $15::bytea[],
            $16::int[], $17::text[], $18::text[])
ON CONFLICT DO NOTHING


-- name: known
-- Which of these deliveries are a tenant's. $1 tenant, $2 ids.
SELECT id FROM webhook_delivery WHERE tenant = $1 AND id = ANY ($2::uuid[])


-- name: list
-- Deliveries of a tenant, newest first, from one page of its rows. $1 tenant, $2 source or NULL, $3 verdict or NULL,
-- $4 delivery id or NULL, $5 id before which to go on, $6 how many, $7 the first id of the page.
SELECT id, source, delivery_id, item, verdict, reason, error, event_id, received_at, took_ms, secret
FROM webhook_delivery
WHERE tenant = $1
  AND ($2::text IS NULL OR source = $2)
  AND CASE WHEN $3::text IS NULL THEN verdict <> 'batch' ELSE verdict = $3 END
  AND ($4::text IS NULL OR delivery_id = $4)
  AND id < $5 AND id >= $7
ORDER BY id DESC
LIMIT $6


-- name: list_quarantined
-- Deliveries of a tenant that are in quarantine, newest first. $1 tenant, $2 source or NULL, $3 delivery id or NULL,
-- $4 id before which to go on, $5 how many, $6 reason or NULL.
SELECT id, source, delivery_id, item, verdict, reason, error, event_id, received_at, took_ms, secret
FROM webhook_delivery
WHERE tenant = $1 AND verdict = 'quarantined' AND id < $4 AND ($6::text IS NULL OR reason = $6)
  AND ($2::text IS NULL OR source = $2) AND ($3::text IS NULL OR delivery_id = $3)
ORDER BY id DESC
LIMIT $5


-- name: newest
-- The newest event of each stream that is a record of a source id, by how what it says beside its data begins: as
-- this release writes it ($4), or one that named no source id ($5). Of each stream, the newest $6 events are looked
-- at. $1 tenant, $2 aggregate type, $3 keys. No row for a stream without such an event.
SELECT wanted.n, newest.extra
FROM unnest($3::text[], $4::bytea[]) WITH ORDINALITY AS wanted (key, begins, n)
CROSS JOIN LATERAL (
    SELECT recent.extra FROM (
        SELECT o.extra, o.version FROM outbox o
        WHERE o.tenant = $1 AND o.aggregate_type = $2 AND o.aggregate_id = wanted.key
        ORDER BY o.version DESC LIMIT $6
    ) AS recent
    WHERE substr(recent.extra, 1, octet_length(wanted.begins)) = wanted.begins
        OR substr(recent.extra, 1, octet_length($5::bytea)) = $5
    ORDER BY recent.version DESC LIMIT 1
) AS newest


-- name: page_start
-- The first id of a page of a tenant's deliveries, newest first; none where the page is the last one. $1 tenant, $2 id
-- before which it ends, $3 how many rows a page has
SELECT id FROM webhook_delivery WHERE tenant = $1 AND id < $2 ORDER BY id DESC OFFSET $3 - 1 LIMIT 1


-- name: settle
-- What a replay made of a delivery. Its body comes into the row: another event may hold another shape of it. One that
-- made no event leaves what another has made of it meanwhile. $1 tenant, $2 id, $3 verdict, as it was where there is no
-- event, $4 reason, $5 error, $6 event id.
UPDATE webhook_delivery d
SET verdict = $3, reason = $4, error = $5, event_id = coalesce($6, d.event_id), body_bytes = NULL,
    body = coalesce(d.body, (
        SELECT substr(o.payload, 9, d.body_bytes) FROM outbox o WHERE o.id = d.event_id AND o.tenant = d.tenant
    ))
WHERE d.tenant = $1 AND d.id = $2 AND ($6::uuid IS NOT NULL OR d.verdict = $3)


-- name: show
-- One delivery with its request, which may stand in another row, and whose body may stand in the event: behind
-- `{"body":`, as normalize.py writes it. $1 tenant, $2 id.
SELECT d.id, d.source, d.delivery_id, d.item, d.verdict, d.reason, d.error, d.event_id, d.received_at,
       d.took_ms, d.secret, d.digest, r.target, r.headers,
       coalesce(r.body, substr(o.payload, 9, r.body_bytes)) AS body
FROM webhook_delivery d
LEFT JOIN webhook_delivery r ON r.id = d.request
LEFT JOIN outbox o ON o.id = r.event_id AND o.tenant = r.tenant AND r.body_bytes IS NOT NULL
WHERE d.tenant = $1 AND d.id = $2


-- name: there
-- Which of these deliveries are there. $1 ids.
SELECT id FROM webhook_delivery WHERE id = ANY ($1::uuid[])
