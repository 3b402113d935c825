-- How many gateways may still act on an older catalog. $1 the clock's revision, $2 seconds of silence after
-- which a gateway acts on nothing.
SELECT count(*) FROM catalog_reader WHERE revision < $1 AND seen_at > now() - $2::float8 * interval '1 second'
