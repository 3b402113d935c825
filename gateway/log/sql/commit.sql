-- The compare-and-swap that decides: moves the partition from one (seq, chain) to the next and inserts the
-- rows in between, or does nothing at all. Never ON CONFLICT: a violation is a bug and must be loud.
-- $1 p, $2 epoch, $3 and $4 seq and chain before, $5 and $6 after, then a column an array, one item a row, where
-- each payload begins and how long it is (-1: none), all ids of appends, 16 bytes each, all digests, 32 bytes each,
-- and all payloads; then the identities that clients chose, these and their requests' digests as digests are, and
-- last the mode. Returns the number of rows inserted, 0 when the swap failed.
-- The arrays are unnested side by side in a list of columns: in FROM, each would be stored before it is read.
-- The advisory lock tells swap_in_turn (migration 14), which takes the UPDATE's place where another gateway's events
-- come before these, that a commit is under way.
WITH swapped AS (
    UPDATE partition_log SET seq = $5, chain = $6
    WHERE p = $1 AND epoch = $2 AND mode = $32 AND seq = $3 AND chain = $4
    RETURNING p, pg_advisory_xact_lock(1936483683, p)
), inserted AS (
    INSERT INTO outbox (p, seq, version, recorded_at, id, tenant, correlation_id, causation_id, spec_rev,
        append_id, digest, aggregate_type, aggregate_id, type, actor_type, actor_id, target_type, target_id,
        extra, payload)
    SELECT swapped.p, $3 + r.n, r.version,
        timestamptz 'epoch' + r.recorded_at_ms * interval '1 millisecond', r.id, r.tenant,
        r.correlation_id, r.causation_id, r.spec_rev, substr($24::bytea, 16 * r.n - 15, 16),
        substr($25::bytea, 32 * r.n - 31, 32), r.aggregate_type,
        r.aggregate_id, r.type, r.actor_type, r.actor_id, r.target_type, r.target_id, r.extra,
        substr($26::bytea, r.payload_from, nullif(r.payload_length, -1))
    FROM swapped, (
        SELECT generate_subscripts($7::text::bigint[], 1) AS n,
            unnest($7::text::bigint[]) AS version,
            unnest($8::text::bigint[]) AS recorded_at_ms,
            unnest($9::text::uuid[]) AS id,
            unnest($10::text::uuid[]) AS tenant,
            unnest($11::text::uuid[]) AS correlation_id,
            unnest($12::text::uuid[]) AS causation_id,
            unnest($13::text::int[]) AS spec_rev,
            unnest($14::text::text[]) AS aggregate_type,
            unnest($15::text::text[]) AS aggregate_id,
            unnest($16::text::text[]) AS type,
            unnest($17::text::text[]) AS actor_type,
            unnest($18::text::text[]) AS actor_id,
            unnest($19::text::text[]) AS target_type,
            unnest($20::text::text[]) AS target_id,
            unnest($21::bytea[]) AS extra,
            unnest($22::text::int[]) AS payload_from,
            unnest($23::text::int[]) AS payload_length
    ) AS r
    RETURNING 1
), remembered AS (
    INSERT INTO append_identity (tenant, identity, p, seq, count, digest)
    SELECT i.tenant, substr($28::bytea, 32 * i.ordinality::int - 31, 32), swapped.p, i.seq, i.count,
        substr($31::bytea, 32 * i.ordinality::int - 31, 32)
    FROM swapped, unnest($27::text::uuid[], $29::text::bigint[], $30::text::int[]) WITH ORDINALITY
        AS i(tenant, seq, count)
)
SELECT count(*) FROM inserted
