-- A gateway is there and has followed the clock up to a revision. $1 gateway, $2 revision.
INSERT INTO catalog_reader (gateway, revision, seen_at) VALUES ($1, $2, now())
ON CONFLICT (gateway) DO UPDATE SET revision = excluded.revision, seen_at = excluded.seen_at
