-- How full this server is, and some of the streams that a partition has on it, at random. Writes nothing.
--
-- KEYS  1 meta, 2 journal and 3 heads of an epoch
-- ARGV  1 nonce, 2 most streams to name, 3 seconds for which the journal of an epoch that ended is kept
-- returns {nonce, bytes used, bytes that the server may use (0: no limit), entries of the journal, streams,
--          epochs that ended and have streams here, such whose journal has been kept long enough, each with spaces
--          between them, key of a stream…}

local info = redis.call('INFO', 'memory')
local streams = {}
if ARGV[2] ~= '0' then streams = redis.call('HRANDFIELD', KEYS[3], ARGV[2]) end
local named = {}
for i = 1, #streams do
  if streams[i] ~= '' then named[#named + 1] = streams[i] end
end
local m = redis.call('HMGET', META, 'old', 'journals')
local due, since = {}, tonumber(redis.call('TIME')[1]) - tonumber(ARGV[3])
for epoch, ended in string.gmatch(m[2] or '', '(%d+):(%d+)') do
  if tonumber(ended) <= since then due[#due + 1] = epoch end
end
return {
  NONCE, string.match(info, 'used_memory:(%d+)'), string.match(info, 'maxmemory:(%d+)'),
  redis.call('XLEN', KEYS[2]), math.max(redis.call('HLEN', KEYS[3]) - 1, 0),
  m[1] or '', table.concat(due, ' '), unpack(named)
}
