-- Takes away keys of an epoch that has ended.
--
-- KEYS  1 meta, 2 heads of that epoch, 3… keys that go
-- ARGV  1 nonce, 2 that epoch, 3 what these keys are: 'streams', some of its streams; 'old', all but the journal;
--       'journals', its journal
-- returns {nonce, 'OK'} or {nonce, 'STALE'}: this server is still in that epoch

local m = redis.call('HMGET', META, 'epoch', 'old', 'journals')
if not m[1] or tonumber(m[1]) <= tonumber(ARGV[2]) then return { NONCE, 'STALE' } end
redis.call('UNLINK', unpack(KEYS, 3))
if ARGV[3] == 'streams' then
  redis.call('HDEL', KEYS[2], unpack(KEYS, 3))
else
  local left = (ARGV[3] == 'old' and m[2] or m[3] or '') .. ' '
  left = string.gsub(left, ' ' .. ARGV[2] .. ':?%d* ', ' ')
  redis.call('HSET', META, ARGV[3], string.sub(left, 1, -2))
end
return { NONCE, 'OK' }
