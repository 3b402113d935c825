-- What is sequenced after a position, for a gateway that commits on another's behalf.
--
-- KEYS  1 meta, 2 journal
-- ARGV  1 nonce, 2 epoch, 3 seq, 4 most entries
-- returns {nonce, 'FENCED', reason} or {nonce, 'OK', q, h, c, entries as XRANGE gives them}

local p, reason = open_partition(ARGV[2])
if not p then return { NONCE, 'FENCED', reason } end
local entries = redis.call('XRANGE', KEYS[2], text(tonumber(ARGV[3]) + 1), '+', 'COUNT', ARGV[4])
return { NONCE, 'OK', whole(p.q), p.h, whole(p.c), entries }
