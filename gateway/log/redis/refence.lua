-- Believes this server again: same epoch, and its chain contains what Postgres committed.
--
-- KEYS  1 meta, 2 journal
-- ARGV  1 nonce, 2 epoch, 3 replid that was inspected, 4 and 5 seq and chain in Postgres
-- returns {nonce, 'OK'} or {nonce, 'STALE'}

local master, replid = server_identity()
local m = redis.call('HMGET', META, 'epoch', 'torn', 'q', 'h', 'c', 'ch')
if not master or replid ~= ARGV[3] or m[1] ~= ARGV[2] or m[2] ~= '' then return { NONCE, 'STALE' } end
local chain
if m[3] == ARGV[4] then
  chain = m[4]
elseif m[5] == ARGV[4] then
  chain = m[6]
else
  local entry = redis.call('XRANGE', KEYS[2], ARGV[4], ARGV[4], 'COUNT', 1)[1]
  chain = entry and entry[2][6]
end
if chain ~= ARGV[5] then return { NONCE, 'STALE' } end
redis.call('HSET', META, 'fence', replid)
if tonumber(ARGV[4]) > tonumber(m[5]) then redis.call('HSET', META, 'c', ARGV[4], 'ch', chain) end
return { NONCE, 'OK' }
