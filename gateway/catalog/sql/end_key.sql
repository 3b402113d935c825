-- Ends a key after its grace, never later than it ends anyway. $1 handle, $2 grace, $3 the clock's revision.
UPDATE api_key SET expires_at = least(expires_at, now() + $2::interval), changed = $3 WHERE handle = $1
