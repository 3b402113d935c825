-- Gives every append of the call its place, or says why not. Validates everything over an overlay first,
-- then writes: a script error rolls nothing back, so the writes stand between setting and clearing `torn`.
--
-- KEYS  1 meta, 2 journal, 3 and 4 identity hashes, 5 calls, 6… one stream for each append
-- ARGV  1 nonce, 2 epoch, 3 window (events that may be uncommitted), 4 and 5 seq and chain known committed,
--       6 trim the journal below this seq (0: don't), 7 seq at which the identities were looked up,
--       8 caller, 9 the caller's call number,
--       10 facts, for each append one after another, numbers big-endian:
--          f64 expected, u32 number of events n, u32 number of identities, u32 where in its body the first
--          event begins (from 1), u8 length of the head hint, the hint ('' or '<gen>:<head>'), 32 bytes of
--          request digest, 32 of row digest for each event, 32 for each identity, and where n is above 1,
--          u32 length of each event,
--       11… its body: a MessagePack array of header and events, kept as it is
-- returns {nonce, 'FENCED', reason} or
--         {nonce, 'OK', q before, h before, q after, h after, c, gen, answer…}
--   answer: first version (integer) when sequenced, else 'D<seq>:<count>' the retry of that append,
--           'M' mismatch, 'C<head>' conflict, 'X' cold, 'B' busy, 'S' look the identities up again
--
-- Journal entry <last seq>-0: one field, '<last seq>:<first version>:<chain after it>'; its value is the body.
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
advance(p, JOURNAL, tonumber(ARGV[4]), ARGV[5])
if ARGV[6] ~= '0' then call('XTRIM', JOURNAL, 'MINID', '~', ARGV[6]) end

-- Identities are remembered in two hashes by turns, `w` events each: what is older than the one before
-- the current is forgotten, and only a caller that looked in Postgres since then may go on.
local bucket = math.floor(p.q / p.w)
local stale = tonumber(ARGV[7]) < (bucket - 1) * p.w

-- What is asked, a column each: length expected, events, where the first one begins in the body, hint, request
-- digest, row digests, last identity, and where the lengths of the events stand.
local FACTS, BODY, STREAM = ARGV[10], 10, 5
local appends = #ARGV - BODY
local a_expected, a_n, a_first, a_hint, a_request, a_rows = {}, {}, {}, {}, {}, {}
local a_last, a_lengths = {}, {}
local identities, asked = {}, 0
local at = 1
for i = 1, appends do
  local n, k
  a_expected[i], n, k, a_first[i], a_hint[i], a_request[i], at = cut('>dI4I4I4Bc0c32', FACTS, at)
  a_n[i] = n
  a_rows[i] = sub(FACTS, at, at + 32 * n - 1)
  at = at + 32 * n
  for _ = 1, k do
    asked = asked + 1
    identities[asked] = sub(FACTS, at, at + 31)
    at = at + 32
  end
  a_last[i], a_lengths[i] = asked, at
  if n > 1 then at = at + 4 * n end
end

-- All identities in one go. A claim reads '<last seq>:<count>:<request digest>'.
local claimed = {}
for turn = 3, 4 do
  for from = 1, asked, 4000 do
    local to = from + 3999
    if to > asked then to = asked end
    local found = call('HMGET', KEYS[turn], unpack(identities, from, to))
    for k = from, to do
      local claim = found[k - from + 1]
      if claim then claimed[identities[k]] = claim end
    end
  end
end

local heads, blocked = {}, {}

local function head_of(key, hint)
  local head = heads[key]
  if head then return head end
  local last = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if last then
    head = tonumber(sub(last[1], 1, -3)) -- '<version>-0'
  elseif hint ~= '' then
    -- Postgres said so, and nothing was evicted since: a missing stream has nothing uncommitted.
    local gen, known = match(hint, '^([^:]+):(%d+)$')
    if gen == p.gen then head = tonumber(known) end
  end
  heads[key] = head
  return head
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

-- What is to be written, a column each: which append, first version and its text, last seq and its text, chain,
-- first identity, claim.
local w = 0
local w_i, w_version, w_v, w_seq, w_q, w_h, w_first, w_claim = {}, {}, {}, {}, {}, {}, {}, {}
local q, h = p.q, p.h

local function answer(i, first)
  local key = KEYS[STREAM + i]
  if blocked[key] then return blocked[key] end
  local digest, last = a_request[i], a_last[i]
  local verdict = earlier(first, last, digest)
  if verdict then return verdict end
  if stale then
    blocked[key] = 'S'
    return 'S'
  end
  local head = head_of(key, a_hint[i])
  if not head then
    blocked[key] = 'X'
    return 'X'
  end
  local expected, n = a_expected[i], a_n[i]
  if (expected >= 0 and expected ~= head) or (expected == -2 and head == 0) then return 'C' .. text(head) end
  if q > p.c and q - p.c + n > window then
    blocked[key] = 'B'
    return 'B'
  end
  local version = head + 1
  local v = text(version)
  q = q + n
  local q_text = text(q)
  h = sha1hex(h .. ':' .. v .. ':' .. a_rows[i])
  heads[key] = head + n
  local claim = q_text .. ':' .. text(n) .. ':' .. digest
  for k = first, last do claimed[identities[k]] = claim end
  w = w + 1
  w_i[w], w_version[w], w_v[w], w_seq[w], w_q[w], w_h[w] = i, version, v, q, q_text, h
  w_first[w], w_claim[w] = first, claim
  return version
end

local reply = { NONCE, 'OK', whole(p.q), p.h, '', '', whole(p.c), p.gen }
local first = 1
for i = 1, appends do
  reply[8 + i] = answer(i, first)
  first = a_last[i] + 1
end

-- The events of an append of several, as entries of its stream.
local function add_each(i, key, version, seq, body)
  local from, place = a_first[i], a_lengths[i]
  for _ = 1, a_n[i] do
    local length
    length, place = cut('>I4', FACTS, place)
    call('XADD', key, text(version) .. '-0', text(seq), sub(body, from, from + length - 1))
    from, version, seq = from + length, version + 1, seq + 1
  end
end

if w > 0 then
  call('HSET', META, 'torn', '1')
  local current, fields, f = bucket, {}, 0
  local full = (bucket + 1) * p.w
  local function remember()
    if f > 0 then call('HSET', KEYS[3 + current % 2], unpack(fields, 1, f)) end
    f = 0
  end
  for j = 1, w do
    local i, seq = w_i[j], w_seq[j]
    local body, key = ARGV[BODY + i], KEYS[STREAM + i]
    if a_n[i] == 1 then
      call('XADD', key, w_v[j] .. '-0', w_q[j], sub(body, a_first[i]))
    else
      add_each(i, key, w_version[j], seq - a_n[i] + 1, body)
    end
    call('XADD', JOURNAL, w_q[j] .. '-0', w_q[j] .. ':' .. w_v[j] .. ':' .. w_h[j], body)
    if seq >= full or f > 4000 then
      remember()
      if seq >= full then
        current = math.floor(seq / p.w)
        full = (current + 1) * p.w
        call('UNLINK', KEYS[3 + current % 2])
      end
    end
    for k = w_first[j], a_last[i] do
      fields[f + 1], fields[f + 2] = identities[k], w_claim[j]
      f = f + 2
    end
  end
  remember()
  call('HSET', META, 'q', text(q), 'h', h, 'torn', '')
end

reply[5], reply[6] = whole(q), h
return reply
