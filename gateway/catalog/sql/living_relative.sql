-- The predecessor or successor of a key that still lives beside it. $1 handle.
SELECT other.handle
FROM api_key k JOIN api_key other ON other.rotated_from = k.handle OR other.handle = k.rotated_from
WHERE k.handle = $1 AND other.revoked_at IS NULL AND (other.expires_at IS NULL OR other.expires_at > now())
LIMIT 1
