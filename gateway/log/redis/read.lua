-- Reads streams, each with what is still in doubt about it.
--
-- KEYS  1 meta, 2 journal, 3… streams
-- ARGV  1 nonce, 2 epoch, 3 and 4 seq and chain known committed, 5 number of reads, then for each:
--         first version, last version, most entries, 1 for newest first
-- returns {nonce, 'FENCED', reason} or {nonce, 'OK', c, as of, read…}
--   read: {head (0: not here), in doubt, entries, 1 if an entry at or below the watermark is here}
--   in doubt: version, seq, event id of the entries above the watermark, newest first, flat
--   entries: as XRANGE gives them, within the bounds and as far as the stream is here

local p, reason = open_partition(ARGV[2])
if not p then return { NONCE, 'FENCED', reason } end
advance(p, KEYS[2], tonumber(ARGV[3]), ARGV[4])

local function version_of(entry)
  return string.match(entry[1], '^%d+')
end

-- A packed event is a MessagePack array whose first item is the id: one byte of array, two of length.
local function id_of(entry)
  return string.sub(entry[2][2], 4, 19)
end

local function in_doubt(key)
  local doubt, before = {}, '+'
  while true do
    local entries = redis.call('XREVRANGE', key, before, '-', 'COUNT', 32)
    for i = 1, #entries do
      if tonumber(entries[i][2][1]) <= p.c then return doubt, 1 end
      doubt[#doubt + 1] = version_of(entries[i])
      doubt[#doubt + 1] = entries[i][2][1]
      doubt[#doubt + 1] = id_of(entries[i])
    end
    if #entries < 32 then return doubt, 0 end
    before = '(' .. entries[#entries][1]
  end
end

local function read(key, first, last, most, newest_first)
  local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not newest then return { 0, {}, {}, 0 } end
  local doubt, grounded = {}, 1
  if tonumber(newest[2][1]) > p.c then doubt, grounded = in_doubt(key) end
  local entries = {}
  if most ~= '0' then
    if newest_first == '1' then
      entries = redis.call('XREVRANGE', key, last, first, 'COUNT', most)
    else
      entries = redis.call('XRANGE', key, first, last, 'COUNT', most)
    end
  end
  return { tonumber(version_of(newest)), doubt, entries, grounded }
end

local reads = {}
for i = 1, tonumber(ARGV[5]) do
  local at = 2 + 4 * i
  reads[i] = read(KEYS[2 + i], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
return { NONCE, 'OK', whole(p.c), p.as_of, unpack(reads) }
