-- Which of the commands that the other scripts use this user may not run: on keys of its own, gone afterwards.
--
-- KEYS  1 meta, 2 a hash and 3 a stream that nothing else uses
-- ARGV  1 nonce
-- A full server refuses the first write alone, so that is one that takes memory.
-- returns {nonce, what is wrong with a command…}

local wrong = {}

local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then wrong[#wrong + 1] = select(1, ...) .. ': ' .. reply.err end
end

try('INFO', 'replication')
try('HMGET', META, 'epoch')
try('HGET', META, 'epoch')
try('HSET', KEYS[2], 'a', '1')
try('XADD', KEYS[3], '*', 'a', '1')
try('XRANGE', KEYS[3], '-', '+')
try('XREVRANGE', KEYS[3], '+', '-')
try('XTRIM', KEYS[3], 'MINID', '~', '1')
try('TIME')
try('XLEN', KEYS[3])
try('OBJECT', 'IDLETIME', KEYS[3])
try('HLEN', KEYS[2])
try('HRANDFIELD', KEYS[2], '1')
try('HDEL', KEYS[2], 'a')
try('UNLINK', KEYS[2])
try('DEL', KEYS[3])
return { NONCE, unpack(wrong) }
