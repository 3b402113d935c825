-- Starts a new epoch on this server, after Postgres was sealed for it. Streams of the epoch come back cold; the keys
-- of the one before are left to clear.lua: `old` has the epochs with streams yet, `journals` those with a journal,
-- each with the time at which it ended.
--
-- KEYS  1 meta, 2 heads of the new epoch
-- ARGV  1 nonce, 2 new epoch, 3 replid that was inspected, 4 and 5 seq and chain in Postgres, 6 bucket size
-- returns {nonce, 'OK'} or {nonce, 'STALE'}: another gateway was here first, or this is another server, or
-- a newer release's

local master, replid = server_identity()
local m = redis.call('HMGET', META, 'epoch', 'old', 'journals', 'format')
if not master or replid ~= ARGV[3] or tonumber(m[1] or '0') >= tonumber(ARGV[2])
  or tonumber(m[4] or '1') > tonumber(FORMAT) then
  return { NONCE, 'STALE' }
end
local before = ' ' .. (m[1] or whole(tonumber(ARGV[2]) - 1))
redis.call('HSET', KEYS[2], '', ARGV[2])
redis.call('HSET', META, 'epoch', ARGV[2], 'fence', replid, 'torn', '', 'q', ARGV[4], 'h', ARGV[5],
  'c', ARGV[4], 'ch', ARGV[5], 'format', FORMAT, 'e', '0', 'w', ARGV[6], 'past', '',
  't', ARGV[4], 'turn', '', 'tq', ARGV[4],
  'old', (m[2] or '') .. before, 'journals', (m[3] or '') .. before .. ':' .. redis.call('TIME')[1])
return { NONCE, 'OK' }
