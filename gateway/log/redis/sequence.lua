-- Gives every append of the call its place, or says why not. Validates everything over an overlay first,
-- then writes: a script error rolls nothing back, so the writes stand between setting and clearing `torn`.
--
-- KEYS  1 meta, 2 journal, 3 and 4 identity hashes, 5 calls, 6 heads, 7 and 8 tag hashes, 9… one stream for each append,
--       then the others of appends to several, then the stream that each tag of ARGV 16 is the own one of
-- ARGV  1 nonce, 2 epoch, 3 window (events that may be uncommitted), 4 and 5 seq and chain known committed,
--       6 how many of its newest events a stream keeps, 7 seq at which the identities were looked up,
--       8 caller, 9 the caller's call number,
--       10 identities of all appends one after another, 32 bytes each,
--       11 facts, for each append one after another, numbers big-endian: f64 expected (a half above a length: and
--          every earlier append of the call to this stream was placed), u32 number of events n,
--          u32 number of identities, u32 length of its body, u32 where the first event begins in it, 32 bytes
--          of request digest (zeros: none), 32 of the first row digest, u8 length of the head hint, the hint ('' or
--          '<as of>:<head>'); and where n is above 1, the other row digests and u32 length of each event,
--       12 bodies one after another, each a MessagePack array of header and events, kept as they are,
--       13 '' or, as MessagePack, of each append to several streams: its number from 1, how many KEYS come before its
--          other streams, what each of these is expected to be, their hints, and for each event a byte with the number
--          of its stream among the append's, from 1,
--       14 of each append that claims unique values, big-endian: u32 its number from 1, f64 the seq at which it was looked
--          up who holds them, u8 whether another aggregate has one of them, u32 how many values, and 32 bytes for each
--       15 of each append with a condition, big-endian: u32 its number from 1, f64 the seq behind which no event may match,
--          f64 the seq up to which Postgres was asked (that seq itself: it was not), f64 the seq of the first match there
--          (0: none), u16 number of items, of each a byte with its number of tags, a byte: 1 where Postgres told of the
--          tags, then of each f64 the seq of the last event with it there; u32 length and MessagePack of the tenant in
--          hexadecimal and the items, each a list of '<aggregate type>.<event type>' and one of tags
--       16 the tags of these items one after another, 16 bytes each
--       17 of each append whose events have declared tags, big-endian: u32 its number from 1, u32 how many, 16 bytes for each
-- returns {nonce, 'FENCED', reason} or
--         {nonce, 'OK', q before, h before, q after, h after, c, as of, answer…}
--   answer: first version (integer) when sequenced, 'V<first version in each stream>,…' if to several; else
--           'D<seq>:<count>' the retry of that append, 'M' mismatch, 'C<head>' conflict, 'C<head>:<stream, from 0>' if to several,
--           'K<seq>' the condition failed by the event there, 'L<seq>' ask Postgres about the condition: tags are known
--           here of what is behind that seq,
--           'X' cold, 'B' busy, 'S' look the identities up again, 'S<seq>' once that is committed: there one of its
--           values was claimed, 'U' another aggregate has one of its values
--
-- Journal entry <last seq>-0, one a call: its field is '<last seq>:<first version in each stream>,…:<chain after it>'
--   for each append, a space between them; its value is their bodies.
-- Heads: '' epoch, and the last version of each stream that this epoch's calls have found, under its key.
-- Stream entry <version>-0: one field, the seq; its value is the packed event.
--
-- What is done for each append is counted in instructions (docs/decisions/0011): few arguments and commands,
-- strings cut out of long ones, numbers written by text(), functions in locals.

local KEYS, ARGV, call = KEYS, ARGV, redis.call
local unpack, sub, match, cut, sha1hex = unpack, string.sub, string.match, struct.unpack, redis.sha1hex

local p, reason = open_partition(ARGV[2])
if not p then return { NONCE, 'FENCED', reason } end

local JOURNAL = KEYS[2]
-- A call whose reply was lost may still be under way when its appends are sent again: it must not run after
-- that, or an append that was answered 409 could appear. So calls of one gateway run in order or not at all.
local latest = call('HGET', KEYS[5], ARGV[8])
if latest and tonumber(latest) >= tonumber(ARGV[9]) then return { NONCE, 'FENCED', 'late' } end
call('HSET', KEYS[5], ARGV[8], ARGV[9])

local window = tonumber(ARGV[3])
if not advance(p, JOURNAL, tonumber(ARGV[4]), ARGV[5]) then return { NONCE, 'FENCED', 'behind' } end

-- Identities are remembered in two hashes by turns, `w` events each: what is older than the one before
-- the current is forgotten, and only a caller that looked in Postgres since then may go on.
local bucket = math.floor(p.q / p.w)
local stale = tonumber(ARGV[7]) < (bucket - 1) * p.w

local STREAM, HEADS, IDENTITIES, FACTS, BODIES = 8, KEYS[6], ARGV[10], ARGV[11], ARGV[12]
local asked_tags = ARGV[16] and #ARGV[16] / 16 or 0
local own_streams = #KEYS - asked_tags
local appends, several = own_streams - STREAM, {}
if ARGV[13] ~= '' then
  for _, of in ipairs(cmsgpack.unpack(ARGV[13])) do
    several[of[1]] = { before = of[2], expected = of[3], hints = of[4], order = of[5] }
    appends = appends - #of[3]
  end
end

-- All identities in one go. A claim reads '<last seq>:<count>:<request digest>'.
local identities, claimed = {}, {}
for k = 1, #IDENTITIES / 32 do identities[k] = sub(IDENTITIES, 32 * k - 31, 32 * k) end
for turn = 3, 4 do
  for from = 1, #identities, 4000 do
    local to = math.min(from + 3999, #identities)
    local found = call('HMGET', KEYS[turn], unpack(identities, from, to))
    for k = from, to do
      local claim = found[k - from + 1]
      if claim then claimed[identities[k]] = claim end
    end
  end
end

-- Claimed values are remembered among the identities, each with the seq of the latest append that claims it.
local claiming, next_claim = {}, 1
while ARGV[14] and next_claim <= #ARGV[14] do
  local number, looked_up, taken, count, from = cut('>I4dBI4', ARGV[14], next_claim)
  local values = {}
  for k = 1, count do values[k] = sub(ARGV[14], from + 32 * k - 32, from + 32 * k - 1) end
  claiming[number] = { looked_up = looked_up, taken = taken == 1, values = values }
  next_claim = from + 32 * count
  for turn = 3, 4 do
    for first = 1, count, 4000 do
      local to = math.min(first + 3999, count)
      local found = call('HMGET', KEYS[turn], unpack(values, first, to))
      for k = first, to do
        local seq, before = found[k - first + 1], claimed[values[k]]
        if seq and (not before or tonumber(seq) > tonumber(before)) then claimed[values[k]] = seq end
      end
    end
  end
end

-- What keeps append number `i` from the values that it claims.
local function taken_by_another(i)
  local of = claiming[i]
  if not of then return nil end
  for _, value in ipairs(of.values) do
    if claimed[value] and tonumber(claimed[value]) > of.looked_up then return 'S' .. claimed[value] end
  end
  return of.taken and 'U' or nil
end

-- All heads in one go too.
local heads, blocked, skipped = {}, {}, {}
local known = call('HMGET', HEADS, '', unpack(KEYS, STREAM + 1, own_streams))
if known[1] ~= ARGV[2] then
  -- Without it, what is sequenced and not committed would be taken for missing.
  call('HSET', META, 'torn', 'heads')
  return { NONCE, 'FENCED', 'torn' }
end

local function head_of(i, key, hint)
  local head = heads[key]
  if head then return head end
  if known[1 + i] then return tonumber(known[1 + i]) end
  if hint == '' then return nil end
  -- Postgres said so, and nothing was evicted since: a stream without a head has nothing uncommitted.
  local as_of, committed = match(hint, '^([^:]+):(%d+)$')
  return as_of and holds(as_of, p, ARGV[2]) and tonumber(committed) or nil
end

-- Whether the append is a retry of an earlier one. The first identity is the event id, which a retry under an
-- identity that its client chose does not share when the gateway minted it.
local function earlier(first, last, digest)
  local mine, seen = nil, 0
  for k = first, last do
    local claim = claimed[identities[k]]
    if claim then
      if mine and claim ~= mine then return 'M' end
      mine = claim
      seen = seen + 1
    end
  end
  if not mine then return nil end
  local seq, count, theirs = match(mine, '^(%d+):(%d+):(.*)$')
  local asked_for = last - first + 1
  local but_minted = seen == asked_for - 1 and not claimed[identities[first]]
  if theirs ~= digest or not (seen == asked_for or but_minted) then return 'M' end
  return 'D' .. seq .. ':' .. count
end

local q, h = p.q, p.h

-- Conditions. Mostly the tags tell that nothing matches. Else: what was sequenced behind the seq up to which Postgres was
-- asked is all in the journal, and what this call has placed is in BODIES: its events are indexed here by tag and by
-- type, once for all conditions of the call.
local NEAR = 100 -- events of the journal that are read for a condition that Postgres was not asked about
local conditions, oldest, indexed, whole_journal
if ARGV[15] and ARGV[15] ~= '' then
  conditions = {}
  local facts, next_fact, next_tag, number, count, told, size = ARGV[15], 1, 1, nil, nil, nil, nil
  while next_fact <= #facts do
    local of = { counts = {}, first = next_tag }
    number, of.after, of.asked, of.matched, count, next_fact = cut('>I4dddI2', facts, next_fact)
    for item = 1, count do
      of.counts[item], next_fact = cut('B', facts, next_fact)
      next_tag = next_tag + of.counts[item]
    end
    told, next_fact = cut('B', facts, next_fact)
    if told == 1 then
      of.lasts = {}
      for tag = of.first, next_tag - 1 do of.lasts[tag], next_fact = cut('>d', facts, next_fact) end
    end
    size, next_fact = cut('>I4', facts, next_fact)
    of.items, next_fact = sub(facts, next_fact, next_fact + size - 1), next_fact + size
    -- What is not committed is at most a window: a look that is further behind is old, and would take long.
    of.old = p.q - of.asked > (of.asked > of.after and window or NEAR)
    conditions[number] = of
  end
end
local byte, format = string.byte, string.format

-- A value of what the gateway packs (arrays, texts, bytes, numbers, nil), and where the next one begins; an array is
-- its length, its items follow. Lua's own MessagePack does not know bytes.
local function value_at(s, at)
  local b = byte(s, at)
  if b < 0x80 then return b, at + 1 end
  if b >= 0x90 and b <= 0x9f then return b - 0x90, at + 1 end
  if b >= 0xa0 and b <= 0xbf then return sub(s, at + 1, at + b - 0xa0), at + 1 + b - 0xa0 end
  if b == 0xc0 then return nil, at + 1 end
  if b == 0xdc then return cut('>I2', s, at + 1), at + 3 end
  if b == 0xdd then return cut('>I4', s, at + 1), at + 5 end
  local size, width
  if b == 0xc4 or b == 0xd9 then size, width = byte(s, at + 1), 2 end
  if b == 0xc5 or b == 0xda then size, width = cut('>I2', s, at + 1), 3 end
  if b == 0xc6 or b == 0xdb then size, width = cut('>I4', s, at + 1), 5 end
  if size then return sub(s, at + width, at + width + size - 1), at + width + size end
  local bytes = ({ [0xcc] = 1, [0xcd] = 2, [0xce] = 4, [0xcf] = 8, [0xd0] = 1, [0xd1] = 2, [0xd2] = 4, [0xd3] = 8 })[b]
  return 0, at + 1 + bytes -- a time or a revision: nothing here asks for it
end

-- Where it ends, an array with its items: what is large is not copied.
local after
function after(s, at)
  local b = byte(s, at)
  if b == 0xc4 or b == 0xd9 then return at + 2 + byte(s, at + 1) end
  if b == 0xc5 or b == 0xda then return at + 3 + cut('>I2', s, at + 1) end
  if b == 0xc6 or b == 0xdb then return at + 5 + cut('>I4', s, at + 1) end
  local items, following = value_at(s, at)
  if (b >= 0x90 and b <= 0x9f) or b == 0xdc or b == 0xdd then
    for _ = 1, items do following = after(s, following) end
  end
  return following
end

local by_tag, by_type = {}, {}
local placed, placed_bodies, placed_last = 0, {}, {} -- of the appends of this call: where they are in BODIES, their last seq

local function put(index, key, event)
  local found = index[key]
  if found then found[#found + 1] = event else index[key] = { event } end
end

-- Mostly of one tenant, event after event.
local spelled = {}
local function hexadecimal(bytes)
  local found = spelled[bytes]
  if not found then
    found = string.gsub(bytes, '.', function(c) return format('%02x', byte(c)) end)
    spelled[bytes] = found
  end
  return found
end

local function stream_at(s, at)
  local _, tenant, aggregate_type, key
  _, at = value_at(s, at)
  tenant, at = value_at(s, at)
  aggregate_type, at = value_at(s, at)
  key, at = value_at(s, at)
  return { tenant = hexadecimal(tenant), type = aggregate_type, own = aggregate_type .. ':' .. key }, at
end

-- The header of a body: the stream of each event, their tags; and where its events begin.
local function header_at(s, at)
  local fields, stream, count, of, _
  fields, at = value_at(s, at)
  stream, at = stream_at(s, at)
  at = after(s, at)
  count, at = value_at(s, at)
  for _ = 1, count do at = after(s, at) end
  at = after(s, at)
  local tags, streams, order = {}, nil, nil
  if fields > 4 then
    count, at = value_at(s, at)
    for n = 1, count do
      of, at = value_at(s, at)
      tags[n] = {}
      for k = 1, of do tags[n][k], at = value_at(s, at) end
    end
  end
  if fields > 5 and byte(s, at) == 0xc0 then
    at = at + 1
  elseif fields > 5 then
    streams, order = {}, {}
    _, at = value_at(s, at)
    count, at = value_at(s, at)
    for n = 1, count do streams[n], at = stream_at(s, at) end
    count, at = value_at(s, at)
    for n = 1, count do order[n], at = value_at(s, at) end
  end
  for _ = 7, fields do at = after(s, at) end
  return stream, tags, streams, order, at
end

-- Takes the events of the body at `at` in, the last of which is at `last`; returns where the body ends and the seq
-- before its first.
local function index_body(s, at, last)
  local items, fields
  items, at = value_at(s, at)
  local stream, tags, streams, order
  stream, tags, streams, order, at = header_at(s, at)
  local events = items - 1
  for n = 1, events do
    local of = streams and streams[order[n] + 1] or stream
    fields, at = value_at(s, at)
    at = after(s, at)
    local event_type
    event_type, at = value_at(s, at)
    for _ = 3, fields do at = after(s, at) end
    local event = { seq = last - events + n, type = of.type .. '.' .. event_type, tags = { [of.own] = true },
      system = sub(of.type, 1, 1) == '_' }
    put(by_tag, of.tenant .. of.own, event)
    for _, tag in ipairs(tags[n] or {}) do
      if not event.tags[tag] then put(by_tag, of.tenant .. tag, event) end
      event.tags[tag] = true
    end
    put(by_type, of.tenant .. event.type, event)
  end
  return at, last - events
end

-- Takes in what is in the journal behind `oldest`; false where it is not all there.
local function index_journal()
  indexed = true
  for _, each in pairs(conditions) do
    if not each.old and (not oldest or each.asked < oldest) then oldest = each.asked end
  end
  if oldest > p.q then return false end
  for n = 1, placed do index_body(BODIES, placed_bodies[n], placed_last[n]) end
  local reached = oldest
  while reached < p.q do
    local entries = call('XRANGE', JOURNAL, text(reached + 1), '+', 'COUNT', 16)
    if #entries == 0 then return false end
    for _, entry in ipairs(entries) do
      local body, at, before = entry[2][2], 1, nil
      for last in string.gmatch(entry[2][1], '(%d+):[%d,]+:') do
        at, before = index_body(body, at, tonumber(last))
        if before > reached then return false end
        reached = math.max(reached, tonumber(last))
      end
    end
  end
  return true
end

local function matches(event, types, tags)
  if types then
    if not types[event.type] then return false end
  elseif event.system then
    return false
  end
  for _, tag in ipairs(tags) do
    if not event.tags[tag] then return false end
  end
  return true
end

-- The first seq behind what Postgres was asked about at which an event matches the condition, or nil.
local function first_match(condition)
  local first
  local function look(events, types, tags)
    for _, event in ipairs(events or {}) do
      if event.seq > condition.asked and (not first or event.seq < first) and matches(event, types, tags) then
        first = event.seq
      end
    end
  end
  local tenant, items = unpack(cmsgpack.unpack(condition.items))
  for _, item in ipairs(items) do
    local tags, types = item[2], nil
    if #item[1] > 0 then
      types = {}
      for _, each in ipairs(item[1]) do types[each] = true end
    end
    if #tags > 0 then
      local fewest
      for _, tag in ipairs(tags) do
        local events = by_tag[tenant .. tag]
        if not events then
          fewest = {}
          break
        end
        if not fewest or #events < #fewest then fewest = events end
      end
      look(fewest, types, tags)
    else
      for each in pairs(types) do look(by_type[tenant .. each], types, tags) end
    end
  end
  return first
end

-- Tags. Two hashes by turns, `w` events each, have the last seq of every declared tag of what was sequenced behind
-- `tags_from`; and what looks told of tags, '<last seq>:<seq up to which that is so>'. A tag may be the own one of a
-- stream as well: of streams with events behind `own_from`, the heads are here, and their last entries have the seq.
--
-- A gateway of an earlier release remembers no tags: what it has sequenced ends what is known of them.
local tags_end = p.tq ~= p.q
if tags_end then p.t, p.turn = p.q, nil end
local tags_from, own_from = math.max(p.t, p.turn and (p.turn - 1) * p.w or 0), math.max(p.t, p.e)

local tag_at, last_of, as_of, head_of_own, places_of = {}, {}, {}, {}, {}
for k = 1, asked_tags do
  tag_at[k] = sub(ARGV[16], 16 * k - 15, 16 * k)
  places_of[tag_at[k]] = places_of[tag_at[k]] or {}
  table.insert(places_of[tag_at[k]], k)
end
for from = 1, asked_tags, 4000 do
  local to = math.min(from + 3999, asked_tags)
  for turn = 0, tags_end and -1 or 1 do -- the newer one first
    local found = call('HMGET', KEYS[7 + ((p.turn or 0) + turn) % 2], unpack(tag_at, from, to))
    for k = from, to do
      local told = found[k - from + 1]
      if told and not last_of[k] then
        local last, seq = match(told, '^(%d+):?(%d*)$')
        last_of[k] = tonumber(last)
        as_of[k] = tonumber(seq) or last_of[k]
      end
    end
  end
  local found = call('HMGET', HEADS, unpack(KEYS, own_streams + from, own_streams + to))
  for k = from, to do head_of_own[k] = found[k - from + 1] end
end

-- The last seq of the stream that tag `k` is the own one of; nil: it has no head here.
local own_last = {}
local function last_of_own(k)
  local key = KEYS[own_streams + k]
  if not own_last[key] and head_of_own[k] then
    local newest = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    local here = newest and match(newest[1], '^%d+') == head_of_own[k]
    own_last[key] = here and tonumber(newest[2][1]) or math.huge -- somebody deleted it: it may be any
  end
  return own_last[key]
end

-- Whether certainly no event behind the condition's `after` has tag `k`.
local function none_behind(condition, k)
  local after = condition.after
  local upto, last = after, condition.lasts and condition.lasts[k] -- none is between after and upto
  if last and last <= after and condition.asked > upto then upto = condition.asked end
  if last_of[k] then
    if last_of[k] > after then return false end
    if as_of[k] > upto then upto = as_of[k] end
  elseif upto < tags_from then
    return false
  end
  local own = last_of_own(k)
  if own then return own <= after end
  return upto >= own_from
end

-- Whether certainly no event behind the condition's `after` matches it: of each item, there is none with some tag.
local function is_quiet(condition)
  local k = condition.first
  for _, count in ipairs(condition.counts) do
    local quiet = false
    for tag = k, k + count - 1 do quiet = quiet or none_behind(condition, tag) end
    if not quiet then return false end
    k = k + count
  end
  return true
end

local function condition_fails(condition)
  if condition.matched > 0 then return 'K' .. text(condition.matched) end
  if is_quiet(condition) then return nil end
  if not condition.old and not indexed then whole_journal = index_journal() end
  if condition.old or not whole_journal then return 'L' .. text(math.max(tags_from, own_from)) end
  local seq = first_match(condition)
  return seq and 'K' .. text(seq)
end

-- What no stream is as long as: a stream that is expected to be so long is told of after all that refuses the append.
local NEVER = 2 ^ 63

-- The verdict on an append, or nil and the head that it goes after.
local function judge(i, key, hint, first, last, digest, expected, n)
  if blocked[key] then return blocked[key] end
  local chained = expected % 1 ~= 0
  if chained then expected = expected - 0.5 end
  local verdict = earlier(first, last, digest)
  if verdict then return verdict end
  local head = head_of(i, key, hint)
  if stale then
    verdict = 'S'
  elseif not head then
    verdict = 'X'
  elseif (expected >= 0 and expected ~= head) or (expected == -2 and head == 0) or (chained and skipped[key]) then
    local failed = expected >= NEVER and conditions and conditions[i] and condition_fails(conditions[i])
    return failed or 'C' .. text(head)
  else
    -- Nothing of it waits for its turn in a stream, so nothing is blocked behind it.
    local failed = conditions and conditions[i] and condition_fails(conditions[i])
    if failed then return failed end
    verdict = taken_by_another(i)
    if verdict == 'U' then return verdict end
    if not verdict and q > p.c and q - p.c + n > window then verdict = 'B' end
    if not verdict then return nil, head end
  end
  blocked[key] = verdict
  return verdict
end

-- The same of an append to several streams, and their heads: all are as they are expected to be, or none is written.
local function judge_all(i, of, key, hint, first, last, digest, expected, n)
  local keys, before = { key }, {}
  for s, _ in ipairs(of.expected) do keys[1 + s] = KEYS[of.before + s] end
  of.keys = keys
  local verdict, conflict, never
  for s = 1, #keys do verdict = verdict or blocked[keys[s]] end
  if not verdict then
    local retried = earlier(first, last, digest)
    if retried then return retried end
    if stale then verdict = 'S' end
  end
  for s = 1, #keys do
    local asked = s == 1 and expected or of.expected[s - 1]
    local head = head_of(s == 1 and i or of.before + s - 1 - STREAM, keys[s], s == 1 and hint or of.hints[s - 1])
    before[s] = head
    if not head then
      verdict = verdict or 'X'
    elseif asked >= NEVER then
      never = never or 'C' .. text(head) .. ':' .. text(s - 1)
    elseif not conflict and ((asked >= 0 and asked ~= head) or (asked == -2 and head == 0)) then
      conflict = 'C' .. text(head) .. ':' .. text(s - 1)
    end
  end
  if not verdict and not conflict and conditions and conditions[i] then
    local failed = condition_fails(conditions[i])
    if failed then return failed end
  end
  verdict = verdict or conflict or never or taken_by_another(i) or (q > p.c and q - p.c + n > window and 'B')
  if not verdict then return nil, before end
  if verdict ~= conflict and verdict ~= never and verdict ~= 'U' then
    for s = 1, #keys do blocked[keys[s]] = verdict end
  end
  return verdict
end

-- What is to be written. Entries of streams, a column each: key, id, seq, event; for HEADS and the identity
-- hashes, fields and values by turns, the latter for each bucket.
local x, x_key, x_id, x_seq, x_event = 0, {}, {}, {}, {}
local DIGITS = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local index = {}
local ends, remembered = {}, { { bucket, 0 } }
local fields, f, full = remembered[1], 2, (bucket + 1) * p.w

local function add(key, version, seq, event)
  x = x + 1
  x_key[x], x_id[x], x_seq[x], x_event[x] = key, version .. '-0', seq, event
end

-- Numbers that follow each other have all but their last digit in common: that front, and the digit.
local function front_of(number)
  local digit = number % 10
  return number < 10 and '' or text((number - digit) / 10), digit
end

-- The events of an append of several. Their lengths stand at `place` in the facts.
local function add_each(key, version, seq, n, from, place)
  local v_front, v = front_of(version + 1)
  local s_front, s = front_of(seq + 1)
  for k = 1, n do
    local length = cut('>I4', FACTS, place + 4 * k - 4)
    x = x + 1
    x_key[x], x_id[x], x_seq[x] = key, v_front .. DIGITS[v] .. '-0', s_front .. DIGITS[s]
    x_event[x] = sub(BODIES, from, from + length - 1)
    from, v, s = from + length, v + 1, s + 1
    if v == 10 then v_front, v = front_of(version + k + 1) end
    if s == 10 then s_front, s = front_of(seq + k + 1) end
  end
end

-- The events of an append to several streams; returns the first version in each, and all versions for the chain, which
-- are one number where they follow each other.
local function add_to_all(of, heads_before, seq, n, from, whole, place)
  local following, firsts, versions, row = {}, {}, {}, true
  for s = 1, #heads_before do
    following[s] = heads_before[s] + 1
    firsts[s] = text(following[s])
  end
  local whole_first = following[1]
  for k = 1, n do
    local length, s = n == 1 and whole or cut('>I4', FACTS, place + 4 * k - 4), byte(of.order, k)
    local version = following[s]
    following[s] = version + 1
    row = row and version == whole_first + k - 1
    versions[k] = text(version)
    add(of.keys[s], versions[k], text(seq + k), sub(BODIES, from, from + length - 1))
    from = from + length
  end
  of.heads = following
  return table.concat(firsts, ','), row and versions[1] or table.concat(versions, ',')
end

local function claim(i, first, last, seq, value)
  if q >= full then
    local turn = math.floor(q / p.w)
    fields, f, full = { turn, 0 }, 2, (turn + 1) * p.w
    remembered[#remembered + 1] = fields
  end
  for k = first, last do
    local identity = identities[k]
    claimed[identity] = value
    fields[f + 1], fields[f + 2] = identity, value
    f = f + 2
  end
  if claiming[i] then
    for _, claims in ipairs(claiming[i].values) do
      claimed[claims] = seq
      fields[f + 1], fields[f + 2] = claims, seq
      f = f + 2
    end
  end
end

-- The declared tags of each append, by its number: where they begin in ARGV 17, and how many there are.
local tags_of, remember, r = {}, {}, 0
local next_tags = 1
while ARGV[17] and next_tags <= #ARGV[17] do
  local number, count, from = cut('>I4I4', ARGV[17], next_tags)
  tags_of[number] = { from = from, count = count }
  next_tags = from + 16 * count
end

local function remember_tag(tag, last, seq)
  remember[r + 1], remember[r + 2], r = tag, seq == last and text(last) or text(last) .. ':' .. text(seq), r + 2
  for _, k in ipairs(places_of[tag] or {}) do last_of[k], as_of[k] = last, seq end
end

-- What Postgres told of the tags of a condition: the next one need not ask. As many as an event may have.
local REMEMBERED = 16
local function remember_look(of)
  for k = of.first, of.first + REMEMBERED - 1 do
    local last = of.lasts[k]
    if not last then return end
    if (last_of[k] or of.asked >= tags_from) and (as_of[k] or -1) < of.asked then
      remember_tag(tag_at[k], math.max(last, last_of[k] or 0), of.asked)
    end
  end
end

local function remember_tags(of)
  for from = of.from, of.from + 16 * of.count - 1, 16 do remember_tag(sub(ARGV[17], from, from + 15), q, q) end
end

local NO_DIGEST = string.rep('\0', 32)
local reply = { NONCE, 'OK', whole(q), h, '', '', whole(p.c), p.as_of }
local first, at, from, run, runs = 1, 1, 1, 1, {}
-- A stream is trimmed each time that its head passes a multiple of `stride`.
local tail, longer = tonumber(ARGV[6]), {}
local stride, e = math.ceil(tail / 4), 0

local function moved(key, head, n, as_text)
  ends[e + 1], ends[e + 2], e = key, as_text or text(head), e + 2
  heads[key] = head
  if conditions then own_last[key] = q end
  if head % stride < n then longer[key] = head end
end

for i = 1, appends do
  local expected, n, k, size, events, digest, rows, hint
  expected, n, k, size, events, digest, rows, hint, at = cut('>dI4I4I4I4c32c32Bc0', FACTS, at)
  if digest == NO_DIGEST then digest = '' end
  local lengths, last, key, of = at + 32 * n - 32, first + k - 1, KEYS[STREAM + i], several[i]
  local verdict, head
  if of then
    verdict, head = judge_all(i, of, key, hint, first, last, digest, expected, n)
  else
    verdict, head = judge(i, key, hint, first, last, digest, expected, n)
  end
  if verdict then
    reply[8 + i], skipped[key] = verdict, true
    if of then
      for s = 2, #of.keys do skipped[of.keys[s]] = true end
    end
    if run < from then runs[#runs + 1] = sub(BODIES, run, from - 1) end
    run = from + size
  else
    local before, v, versions, answer = q, nil, nil, nil
    q = q + n
    local seq = text(q)
    if n > 1 then rows = rows .. sub(FACTS, at, lengths - 1) end
    if of then
      v, versions = add_to_all(of, head, before, n, from + events, size - events, lengths)
      for s = 1, #of.keys do moved(of.keys[s], of.heads[s] - 1, of.heads[s] - 1 - head[s]) end
      answer = 'V' .. v
    else
      answer = head + 1
      v = text(answer)
      versions = v
      if n == 1 then
        add(key, v, seq, sub(BODIES, from + events, from + size - 1))
      else
        add_each(key, head, before, n, from + events, lengths)
      end
      moved(key, head + n, n, n == 1 and v)
    end
    placed = placed + 1
    h = sha1hex(h .. ':' .. versions .. ':' .. rows)
    index[placed] = seq .. ':' .. v .. ':' .. h
    claim(i, first, last, seq, seq .. ':' .. text(n) .. ':' .. digest)
    if conditions then
      if conditions[i] and conditions[i].lasts then remember_look(conditions[i]) end
      placed_bodies[placed] = from
      placed_last[placed] = q
      if indexed then index_body(BODIES, from, q) end
    end
    if tags_of[i] then remember_tags(tags_of[i]) end
    reply[8 + i] = answer
  end
  at = n == 1 and at or lengths + 4 * n
  first, from = last + 1, from + size
end

if placed > 0 then
  call('HSET', META, 'torn', '1')
  here_alone()
  for j = 1, x do call('XADD', x_key[j], x_id[j], x_seq[j], x_event[j]) end
  if tags_end then
    call('UNLINK', KEYS[7], KEYS[8])
    call('HSET', META, 't', text(p.t), 'turn', '')
  end
  local turn_of_tags = p.turn
  if r > 0 then
    turn_of_tags = math.floor(q / p.w)
    local turns = turn_of_tags - (p.turn or turn_of_tags)
    if turns > 0 then call('UNLINK', KEYS[7 + turn_of_tags % 2]) end
    if turns > 1 then call('UNLINK', KEYS[8 - turn_of_tags % 2]) end
    local hash = KEYS[7 + turn_of_tags % 2]
    for k = 1, r, 4000 do call('HSET', hash, unpack(remember, k, math.min(k + 3999, r))) end
  end
  everywhere()
  local bodies = BODIES
  if run > 1 then
    runs[#runs + 1] = sub(BODIES, run, from - 1)
    bodies = table.concat(runs)
  end
  q = text(q)
  call('XADD', JOURNAL, q .. '-0', table.concat(index, ' '), bodies)
  call('HSET', HEADS, unpack(ends))
  for turn = 1, #remembered do
    local hash = KEYS[3 + remembered[turn][1] % 2]
    if turn > 1 then call('UNLINK', hash) end
    local last = #remembered[turn]
    for k = 3, last, 4000 do call('HSET', hash, unpack(remembered[turn], k, math.min(k + 3999, last))) end
  end
  if turn_of_tags ~= p.turn then call('HSET', META, 'turn', text(turn_of_tags)) end
  call('HSET', META, 'q', q, 'tq', q, 'h', h, 'torn', '', 'past', past_and(p))
  -- What is not committed is among the newest q - c events of a stream.
  local kept = math.max(tail, q - p.c)
  for key, head in pairs(longer) do
    if head > kept then call('XTRIM', key, 'MINID', '~', text(head - kept + 1)) end
  end
end

reply[5], reply[6] = whole(tonumber(q)), h
return reply
