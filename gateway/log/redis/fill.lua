-- Puts committed events back in front of a stream, so that the next reads find them here.
--
-- KEYS  1 meta, 2 stream, 3 heads
-- ARGV  1 nonce, 2 epoch, 3 as of when the stream was not here, or began there, 4 first version that is here ('' : none),
--       then for each event: version, seq, packed event; ascending, without gaps up to ARGV[4]
-- returns {nonce, 'FENCED', reason}, {nonce, 'STALE'} or {nonce, 'OK'}

local p, reason = open_partition(ARGV[2])
if not p then return { NONCE, 'FENCED', reason } end
local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local here = first and string.match(first[1], '^%d+') or ''
local head = redis.call('HGET', KEYS[3], KEYS[2])
local last = ARGV[#ARGV - 2]
-- What is filled must lead to what is here, or, of a stream that was deleted by hand, to what was sequenced.
local up_to = last
if first then
  up_to = text(tonumber(here) - 1)
elseif head then
  up_to = head
end
if not holds(ARGV[3], p, ARGV[2]) or here ~= ARGV[4] or last ~= up_to then return { NONCE, 'STALE' } end

redis.call('HSET', META, 'torn', '1')
local kept = {}
here_alone()
if first then
  kept = redis.call('XRANGE', KEYS[2], '-', '+')
  redis.call('DEL', KEYS[2])
end
for i = 5, #ARGV, 3 do
  redis.call('XADD', KEYS[2], ARGV[i] .. '-0', ARGV[i + 1], ARGV[i + 2])
end
for i = 1, #kept do redis.call('XADD', KEYS[2], kept[i][1], unpack(kept[i][2])) end
everywhere()
if not head then redis.call('HSET', KEYS[3], KEYS[2], last) end
redis.call('HSET', META, 'torn', '')
return { NONCE, 'OK' }
