-- Ends a key now. $1 handle, $2 the clock's revision.
UPDATE api_key SET revoked_at = now(), changed = $2 WHERE handle = $1
