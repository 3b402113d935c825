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
        (SELECT min(c.prefix) FROM alias_counter c WHERE c.tenant = $1 AND c.prefix <> asked.name)
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
    WHEN 'key_of_hash_ids' THEN EXISTS (
        SELECT FROM alias a WHERE a.tenant = $1 AND a.kind = 'hash' AND a.prefix = asked.name)
    WHEN 'prefix_of_public_ids' THEN EXISTS (
        SELECT FROM alias_counter c WHERE c.tenant = $1 AND c.prefix = asked.name)
    WHEN 'public_key' THEN EXISTS (SELECT FROM alias_counter c WHERE c.tenant = $1 AND c.prefix <> asked.name)
END
ORDER BY asked.n
