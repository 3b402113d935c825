-- Reads streams, each with what is still in doubt about it.
--
-- KEYS  1 meta, 2 journal, 3 heads, 4… streams
-- ARGV  1 nonce, 2 epoch, 3 and 4 seq and chain known committed,
--       5 the reads one after another, numbers big-endian: f64 first version, f64 last version, f64 most entries,
--          f64 bytes after which no further entry is begun, f64 length that is known to be committed and not wanted,
--          u8 1 for newest first
-- returns {nonce, 'FENCED', reason} or {nonce, 'OK', c, as of, read…}
--   read: the length that is known, where nothing came after it; else false where the entries of others are enough
--         for one call, so that this one waits for the next;
--         else {head (0: not here), in doubt, entries, 1 if an entry at or below the watermark is here}
--   in doubt: version, seq, event id of the entries above the watermark, newest first, flat
--   entries: as XRANGE gives them, within the bounds and as far as the stream is here, one at least

local KEYS, ARGV, call, match = KEYS, ARGV, redis.call, string.match

local p, reason = open_partition(ARGV[2])
if not p then return { NONCE, 'FENCED', reason } end
if not advance(p, KEYS[2], tonumber(ARGV[3]), ARGV[4]) then return { NONCE, 'FENCED', 'behind' } end

-- Nothing else is served meanwhile. One read is never cut short: it brings as many entries as it asks for.
local ENTRIES_ENOUGH, BYTES_ENOUGH = 1000, 1024 * 1024
-- How large entries are is seen once they are here: so many at a time, not all that a page could hold.
local ENTRIES_A_STEP = 32
local STREAM, READS = 3, ARGV[5]
local VERSION_MAX = 2 ^ 53

local function version_of(entry)
  return match(entry[1], '^%d+')
end

-- A packed event is a MessagePack array whose first item is the id: one byte of array, two of length.
local function id_of(entry)
  return string.sub(entry[2][2], 4, 19)
end

local function in_doubt(key)
  local doubt, before = {}, '+'
  while true do
    local entries = call('XREVRANGE', key, before, '-', 'COUNT', 32)
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

local total, total_bytes = 0, 0

-- At most so many entries, and whether the range ends with them.
local function range(key, first, last, most, most_bytes, newest_first)
  local entries, bytes = {}, 0
  while #entries < most and bytes < most_bytes do
    local step, count = nil, math.min(most - #entries, ENTRIES_A_STEP)
    if newest_first == 1 then
      step = call('XREVRANGE', key, last, first, 'COUNT', text(count))
    else
      step = call('XRANGE', key, first, last, 'COUNT', text(count))
    end
    for i = 1, #step do
      if bytes >= most_bytes then break end
      entries[#entries + 1] = step[i]
      bytes = bytes + #step[i][2][2]
    end
    if #step < count then
      total_bytes = total_bytes + bytes
      return entries, bytes < most_bytes
    end
    if newest_first == 1 then last = '(' .. step[#step][1] else first = '(' .. step[#step][1] end
  end
  total_bytes = total_bytes + bytes
  return entries, false
end

local function read(key, first, last, most, most_bytes, newest_first)
  local entries, newest = {}, nil
  if most > 0 then
    local ends
    entries, ends = range(key, text(first), last < VERSION_MAX and text(last) or '+', most, most_bytes, newest_first)
    if last == VERSION_MAX and newest_first == 1 then
      newest = entries[1]
    elseif last == VERSION_MAX and ends then
      newest = entries[#entries]
    end
  end
  newest = newest or call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not newest then return { 0, {}, {}, 0 } end
  total = total + #entries
  local doubt, grounded = {}, 1
  if tonumber(newest[2][1]) > p.c then doubt, grounded = in_doubt(key) end
  return { tonumber(version_of(newest)), doubt, entries, grounded }
end

-- The heads tell it of streams that nothing was appended to since they were last read, without a look at their
-- entries; but then nothing else shows that they are in use.
local heads = call('HMGET', KEYS[3], '', unpack(KEYS, STREAM + 1))
local sure = heads[1] == ARGV[2]
local reply, unmoved, at = { NONCE, 'OK', whole(p.c), p.as_of }, {}, 1
for i = 1, #KEYS - STREAM do
  local first, last, most, most_bytes, known, newest_first
  first, last, most, most_bytes, known, newest_first, at = struct.unpack('>dddddB', READS, at)
  if known > 0 and sure and tonumber(heads[1 + i]) == known then
    unmoved[#unmoved + 1] = KEYS[STREAM + i]
    reply[4 + i] = known
  elseif total >= ENTRIES_ENOUGH or total_bytes >= BYTES_ENOUGH then
    reply[4 + i] = false
  else
    reply[4 + i] = read(KEYS[STREAM + i], first, last, most, most_bytes, newest_first)
  end
end
if #unmoved > 0 then call('TOUCH', unpack(unmoved)) end
return reply
