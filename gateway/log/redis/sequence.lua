-- Gives every append of the call its place, or says why not. Validates everything over an overlay first,
-- then writes: a script error rolls nothing back, so the writes stand between setting and clearing `torn`.
--
-- KEYS  1 meta, 2 journal, 3 and 4 identity hashes, 5 calls, 6 heads, 7… one stream for each append, then the others of
--       appends to several; and if there is an ARGV 15, two tag hashes and the stream that each tag of ARGV 16 is the own
--       one of
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
--       then, of calls that have more than plain appends, 13 and 14, and of those with conditions or tags 15 to 17, each of
--       them '' if there is nothing to say:
--       13 as MessagePack, of each append to several streams: its number from 1, how many KEYS come before its
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
-- strings cut out of long ones, numbers written by text(), functions in locals. Each function costs a call some 1500 when
-- it is made: what only some calls need is made in those.

local KEYS, ARGV, call = KEYS, ARGV, redis.call
local unpack, sub, match, cut, sha1hex = unpack, string.sub, string.match, struct.unpack, redis.sha1hex

local p, reason = open_partition(ARGV[2])
if not p then return { NONCE, 'FENCED', reason } end

local JOURNAL = KEYS[2]
-- A call whose reply was lost may still be under way when its appends are sent again: it must not run after
-- that, or an append that was answered 409 could appear. So calls of one gateway run in order or not at all.
local latest = call('HGET', KEYS[5], ARGV[8])
if latest and tonumber(latest) >= tonumber(ARGV[9]) then return { NONCE, 'FENCED', 'late' } end
here_alone() -- until the journal is written
call('HSET', KEYS[5], ARGV[8], ARGV[9])

local window = tonumber(ARGV[3])
if not follow(p, JOURNAL, tonumber(ARGV[4]), ARGV[5]) then return { NONCE, 'FENCED', 'behind' } end

-- Identities are remembered in two hashes by turns, `w` events each: what is older than the one before
-- the current is forgotten, and only a caller that looked in Postgres since then may go on.
local bucket = math.floor(p.q / p.w)
local stale = tonumber(ARGV[7]) < (bucket - 1) * p.w

local STREAM, HEADS, IDENTITIES, FACTS, BODIES = 6, KEYS[6], ARGV[10], ARGV[11], ARGV[12]
local own_streams = #KEYS - (ARGV[15] and 2 + #ARGV[16] / 16 or 0)
local appends, several = own_streams - STREAM, nil
if ARGV[13] and ARGV[13] ~= '' then
  several = {}
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
local claiming, taken_by_another
if ARGV[14] and ARGV[14] ~= '' then
  claiming = {}
  local next_claim = 1
  while next_claim <= #ARGV[14] do
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
  function taken_by_another(i)
    local of = claiming[i]
    if not of then return nil end
    for _, value in ipairs(of.values) do
      if claimed[value] and tonumber(claimed[value]) > of.looked_up then return 'S' .. claimed[value] end
    end
    return of.taken and 'U' or nil
  end
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
  if heads[key] then return heads[key] end
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

local tagged = ARGV[15] and open_conditions(p, window, own_streams)

-- What no stream is as long as: a stream that is expected to be so long is told of after all that refuses the append.
local NEVER = 2 ^ 64

-- The verdict on an append, or nil and the head that it goes after.
local function judge(i, key, hint, first, last, digest, expected, n)
  if blocked[key] then return blocked[key] end
  local chained = expected % 1 ~= 0
  if chained then expected = expected - 0.5 end
  local verdict = (first < last or claimed[identities[first]]) and earlier(first, last, digest)
  if verdict then return verdict end
  local head = head_of(i, key, hint)
  if stale then
    verdict = 'S'
  elseif not head then
    verdict = 'X'
  elseif (expected >= 0 and expected ~= head) or (expected == -2 and head == 0) or (chained and skipped[key]) then
    local failed = expected >= NEVER and tagged and tagged.fails(i)
    return failed or 'C' .. text(head)
  else
    -- Nothing of it waits for its turn in a stream, so nothing is blocked behind it.
    local failed = tagged and tagged.fails(i)
    if failed then return failed end
    verdict = claiming and taken_by_another(i)
    if verdict == 'U' then return verdict end
    if not verdict and q > p.c and q - p.c + n > window then verdict = 'B' end
    if not verdict then return nil, head end
  end
  blocked[key] = verdict
  return verdict
end

-- What is to be written. Entries of streams, a column each: key, id, seq, event; for HEADS and the identity
-- hashes, fields and values by turns, the latter for each bucket.
local x, x_key, x_id, x_seq, x_event = 0, {}, {}, {}, {}
local index, placed = {}, 0
local ends, remembered = {}, { { bucket, 0 } }
local fields, f, full = remembered[1], 2, (bucket + 1) * p.w

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

local judge_all, add_to_all
if several then
  -- As judge, of an append to several streams; returns their heads: all are as they are expected to be, or none is written.
  function judge_all(i, of, key, hint, first, last, digest, expected, n)
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
    local failed = tagged and not verdict and not conflict and tagged.fails(i)
    if failed then return failed end
    verdict = verdict or conflict or never or (claiming and taken_by_another(i)) or (q > p.c and q - p.c + n > window and 'B')
    if not verdict then return nil, before end
    if verdict ~= conflict and verdict ~= never and verdict ~= 'U' then
      for s = 1, #keys do blocked[keys[s]] = verdict end
    end
    return verdict
  end

  -- The events of an append to several streams; returns the first version in each, and all versions for the chain, which
  -- are one number where they follow each other.
  function add_to_all(of, heads_before, seq, n, from, whole, place)
    local following, firsts, versions, row = {}, {}, {}, true
    for s = 1, #heads_before do
      following[s] = heads_before[s] + 1
      firsts[s] = text(following[s])
    end
    local whole_first = following[1]
    for k = 1, n do
      local length, s = n == 1 and whole or cut('>I4', FACTS, place + 4 * k - 4), string.byte(of.order, k)
      local version = following[s]
      following[s] = version + 1
      row = row and version == whole_first + k - 1
      versions[k] = text(version)
      x = x + 1
      x_key[x], x_id[x], x_seq[x] = of.keys[s], versions[k] .. '-0', text(seq + k)
      x_event[x] = sub(BODIES, from, from + length - 1)
      from = from + length
    end
    of.heads = following
    return table.concat(firsts, ','), row and versions[1] or table.concat(versions, ',')
  end
end

local NO_DIGEST = string.rep('\0', 32)
local reply = { NONCE, 'OK', whole(q), h, '', '', whole(p.c), p.as_of }
local first, at, from, run, runs = 1, 1, 1, 1, {}
-- A stream is trimmed each time that its head passes a multiple of `stride`.
local tail, longer = tonumber(ARGV[6]), {}
local stride, e = math.ceil(tail / 4), 0

local s_front, s = front_of(q) -- of the last seq

local function moved(key, head, n, as_text)
  ends[e + 1], ends[e + 2], e = key, as_text or text(head), e + 2
  heads[key] = head
  if tagged then tagged.moved(key, q) end
  if head % stride < n then longer[key] = head end
end

for i = 1, appends do
  local expected, n, k, size, events, digest, rows, hint
  expected, n, k, size, events, digest, rows, hint, at = cut('>dI4I4I4I4c32c32Bc0', FACTS, at)
  if digest == NO_DIGEST then digest = '' end
  local lengths, last, key, of = at + 32 * n - 32, first + k - 1, KEYS[STREAM + i], several and several[i]
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
    q, s = q + n, s + n
    if s > 9 then s_front, s = front_of(q) end
    local seq = s_front .. DIGITS[s]
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
        x = x + 1
        x_key[x], x_id[x], x_seq[x] = key, v .. '-0', seq
        x_event[x] = sub(BODIES, from + events, from + size - 1)
      else
        add_each(key, head, before, n, from + events, lengths)
      end
      moved(key, head + n, n, n == 1 and v)
    end
    placed = placed + 1
    h = sha1hex(h .. ':' .. versions .. ':' .. rows)
    index[placed] = seq .. ':' .. v .. ':' .. h
    if q >= full then
      local turn = math.floor(q / p.w)
      fields, f, full = { turn, 0 }, 2, (turn + 1) * p.w
      remembered[#remembered + 1] = fields
    end
    local claim = seq .. ':' .. (n == 1 and '1' or text(n)) .. ':' .. digest
    for each = first, last do
      local identity = identities[each]
      claimed[identity] = claim
      fields[f + 1], fields[f + 2], f = identity, claim, f + 2
    end
    if claiming and claiming[i] then
      for _, value in ipairs(claiming[i].values) do
        claimed[value] = seq
        fields[f + 1], fields[f + 2], f = value, seq, f + 2
      end
    end
    if tagged then tagged.placed(i, from, q) end
    reply[8 + i] = answer
  end
  at = n == 1 and at or lengths + 4 * n
  first, from = last + 1, from + size
end

if placed > 0 then
  call('HSET', META, 'torn', '1')
  for j = 1, x do call('XADD', x_key[j], x_id[j], x_seq[j], x_event[j]) end
  if tagged then tagged.write(q) end
  for turn = 1, #remembered do
    local hash = KEYS[3 + remembered[turn][1] % 2]
    if turn > 1 then call('UNLINK', hash) end
    local last = #remembered[turn]
    for k = 3, last, 4000 do call('HSET', hash, unpack(remembered[turn], k, math.min(k + 3999, last))) end
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
  local left = { 'q', q, 'h', h, 'torn', '', 'past', past_and(p) }
  -- A gateway of an earlier release leaves `tq` behind: there it stays until a call has the tag hashes.
  if tagged or p.tq == p.q then left[9], left[10] = 'tq', q end
  if p.ch then left[#left + 1], left[#left + 2], left[#left + 3], left[#left + 4] = 'c', whole(p.c), 'ch', p.ch end
  call('HSET', META, unpack(left))
  -- What is not committed is among the newest q - c events of a stream.
  local kept = math.max(tail, q - p.c)
  for key, head in pairs(longer) do
    if head > kept then call('XTRIM', key, 'MINID', '~', text(head - kept + 1)) end
  end
end

if placed == 0 and p.ch then
  everywhere()
  call('HSET', META, 'c', whole(p.c), 'ch', p.ch)
end

reply[5], reply[6] = whole(tonumber(q)), h
return reply
