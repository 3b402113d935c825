-- Deletes what Postgres has as well: the front of the journal, and streams that have not been used for long. Never
-- what is not committed: a stream goes only if its last entry is at or below the watermark. One that was deleted by
-- hand shows no entry, and its head is all that tells of what is in doubt: it stays.
--
-- KEYS  1 meta, 2 journal, 3 heads, 4 and 5 tag hashes, 6… streams
-- ARGV  1 nonce, 2 epoch, 3 and 4 seq and chain known committed, 5 first seq that the journal has to keep,
--       6 seconds for which a stream, or both tag hashes, were not touched, 7 most streams to evict, 0: nor tags
-- returns {nonce, 'FENCED', reason} or
--         {nonce, 'OK', entries taken from the journal, streams and tag hashes evicted, seconds since each was touched…; -1: not here}

local p, reason = open_partition(ARGV[2])
if not p then return { NONCE, 'FENCED', reason } end

-- First of all a write that takes no memory: a server that is full refuses others, unless a script has begun to write.
local below = math.min(tonumber(ARGV[5]), p.c + 1)
local trimmed = redis.call('XTRIM', KEYS[2], 'MINID', '~', text(below))
if not advance(p, KEYS[2], tonumber(ARGV[3]), ARGV[4]) then return { NONCE, 'FENCED', 'behind' } end

-- The last seq of a stream, or nil if some of it may not be committed. To look at a stream is to touch it.
local function committed_to(key)
  local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local seq = newest and tonumber(newest[2][1])
  return seq and seq <= p.c and seq or nil
end

local least, most = tonumber(ARGV[6]), tonumber(ARGV[7])
local evicted, touched, highest = {}, {}, p.e
for i = 6, #KEYS do
  touched[i - 5] = redis.call('OBJECT', 'IDLETIME', KEYS[i]) or -1
  if #evicted < most and touched[i - 5] >= least then
    local seq = committed_to(KEYS[i])
    if seq then
      evicted[#evicted + 1] = KEYS[i]
      highest = math.max(highest, seq)
    end
  end
end

if #evicted > 0 then
  -- In this order a script that fails half-way leaves a stream that is missing and whose head is known.
  redis.call('HSET', META, 'e', text(highest))
  redis.call('UNLINK', unpack(evicted))
  redis.call('HDEL', KEYS[3], unpack(evicted))
end

-- Tags go all together: from then on, only what is sequenced later is known of them.
local tags = 0
if most > 0 then
  local idle = math.huge
  for i = 4, 5 do
    local seconds = redis.call('OBJECT', 'IDLETIME', KEYS[i])
    if seconds then
      tags = tags + 1
      idle = math.min(idle, seconds)
    end
  end
  if tags > 0 and idle >= least then
    redis.call('HSET', META, 't', text(p.q), 'turn', '', 'tq', text(p.q))
    redis.call('UNLINK', KEYS[4], KEYS[5])
  else
    tags = 0
  end
end
return { NONCE, 'OK', trimmed, #evicted + tags, unpack(touched) }
