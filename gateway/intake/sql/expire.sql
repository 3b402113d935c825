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
