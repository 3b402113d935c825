-- The compare-and-swap that decides: moves the partition from one (seq, chain) to the next and inserts the
-- rows in between, or does nothing at all. Never ON CONFLICT: a violation is a bug and must be loud.
-- $1 p, $2 epoch, $3 and $4 seq and chain before, $5 and $6 after, then a column an array, one item a row, where
-- each payload begins and how long it is (-1: none), all digests, 32 bytes each, and all payloads; then the
-- identities that clients chose, these and their requests' digests as digests are, and last the mode. Returns the
-- number of rows inserted, 0 when the swap failed.
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
    SELECT swapped.p, $3 + r.ordinality, r.version,
        timestamptz 'epoch' + r.recorded_at_ms * interval '1 millisecond', r.id, r.tenant,
        r.correlation_id, r.causation_id, r.spec_rev, uuid_send(r.append_id),
        substr($25::bytea, 32 * r.ordinality::int - 31, 32), r.aggregate_type,
        r.aggregate_id, r.type, r.actor_type, r.actor_id, r.target_type, r.target_id, r.extra,
        substr($26::bytea, r.payload_from, nullif(r.payload_length, -1))
    FROM swapped, unnest($7::text::bigint[], $8::text::bigint[], $9::text::uuid[], $10::text::uuid[],
        $11::text::uuid[], $12::text::uuid[], $13::text::int[], $14::text::uuid[], $15::text::text[],
        $16::text::text[], $17::text::text[], $18::text::text[], $19::text::text[], $20::text::text[],
        $21::text::text[], $22::bytea[], $23::text::int[], $24::text::int[]) WITH ORDINALITY
        AS r(version, recorded_at_ms, id, tenant, correlation_id, causation_id, spec_rev, append_id,
             aggregate_type, aggregate_id, type, actor_type, actor_id, target_type, target_id, extra,
             payload_from, payload_length)
    RETURNING 1
), remembered AS (
    INSERT INTO append_identity (tenant, identity, p, seq, count, digest)
    SELECT i.tenant, substr($28::bytea, 32 * i.ordinality::int - 31, 32), swapped.p, i.seq, i.count,
        substr($31::bytea, 32 * i.ordinality::int - 31, 32)
    FROM swapped, unnest($27::text::uuid[], $29::text::bigint[], $30::text::int[]) WITH ORDINALITY
        AS i(tenant, seq, count)
)
SELECT count(*) FROM inserted
