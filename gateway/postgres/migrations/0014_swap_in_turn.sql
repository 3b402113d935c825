-- The compare-and-swap of a commit (gateway/log/sql/commit.sql) where another gateway has still to commit what comes
-- before: moves partition `of_p` from (seq, chain) `from_…` to `to_…` and returns it, or nothing when the partition
-- stands elsewhere. Before its turn it waits, its rows at hand. Each attempt is a statement of its own and sees what
-- was committed meanwhile; one statement alone does not, not even when it has waited for the row.
--
-- Whoever swaps holds the advisory lock until its commit is done: who waits asks for it, and has it when the next
-- attempt may hold. While nobody commits it looks again every millisecond, 30 times at most: the gateway whose turn it
-- is may have died. It takes and leaves the lock in one expression: a lock of the session outlives a statement that
-- is cancelled in between, and would hold up all commits.
CREATE FUNCTION swap_in_turn(of_p int, of_epoch bigint, of_mode text, from_seq bigint, from_chain text,
    to_seq bigint, to_chain text) RETURNS SETOF int LANGUAGE plpgsql ROWS 1 AS $$
DECLARE
    committing CONSTANT int := 1936483683;  -- as in commit.sql: a number that nobody else takes locks under
    looks int := 30;
BEGIN
    LOOP
        RETURN QUERY UPDATE partition_log SET seq = to_seq, chain = to_chain
            WHERE p = of_p AND epoch = of_epoch AND mode = of_mode AND seq = from_seq AND chain = from_chain
            RETURNING p;
        IF FOUND THEN
            PERFORM pg_advisory_xact_lock(committing, of_p);
            RETURN;
        END IF;
        PERFORM FROM partition_log WHERE p = of_p AND epoch = of_epoch AND mode = of_mode
            AND (seq < from_seq OR seq = from_seq AND chain = from_chain);
        EXIT WHEN NOT FOUND OR looks = 0;
        IF (CASE WHEN pg_try_advisory_lock_shared(committing, of_p)
            THEN pg_advisory_unlock_shared(committing, of_p) ELSE false END)
        THEN
            PERFORM pg_sleep(0.001);
            looks := looks - 1;
        ELSE
            PERFORM pg_advisory_lock_shared(committing, of_p), pg_advisory_unlock_shared(committing, of_p);
        END IF;
    END LOOP;
END $$;
