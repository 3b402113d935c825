-- Starts a new epoch on this server, after Postgres was sealed for it. Streams of the epoch come back cold.
--
-- KEYS  1 meta, 2 heads of the new epoch
-- ARGV  1 nonce, 2 new epoch, 3 replid that was inspected, 4 and 5 seq and chain in Postgres, 6 bucket size
-- returns {nonce, 'OK'} or {nonce, 'STALE'}: another gateway was here first, or this is another server

local master, replid = server_identity()
local m = redis.call('HMGET', META, 'epoch', 'gen')
if not master or replid ~= ARGV[3] or tonumber(m[1] or '0') >= tonumber(ARGV[2]) then
  return { NONCE, 'STALE' }
end
redis.call('HSET', KEYS[2], '', ARGV[2])
redis.call('HSET', META, 'epoch', ARGV[2], 'fence', replid, 'torn', '', 'q', ARGV[4], 'h', ARGV[5],
  'c', ARGV[4], 'ch', ARGV[5], 'gen', whole(tonumber(m[2] or '0') + 1), 'w', ARGV[6], 'past', '')
return { NONCE, 'OK' }
