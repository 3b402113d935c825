-- Gives every append of the call its place, or says why not. Validates everything over an overlay first,
-- then writes: a script error rolls nothing back, so the writes stand between setting and clearing `torn`.
--
-- KEYS  1 meta, 2 journal, 3 and 4 identity hashes, 5 calls, 6… one stream for each append
-- ARGV  1 nonce, 2 epoch, 3 window (events that may be uncommitted), 4 and 5 seq and chain known committed,
--       6 trim the journal below this seq (0: don't), 7 seq at which the identities were looked up,
--       8 caller, 9 the caller's call number, 10 number of appends, 11 number of identities of all of them,
--       then the identities, then for each append:
--         expected, head hint ('' or '<gen>:<head>'), number of identities, request digest,
--         number of events, row digests, header, packed events…
-- returns {nonce, 'FENCED', reason} or
--         {nonce, 'OK', q before, h before, q after, h after, c, gen, answer…}
--   answer: first version (integer) when sequenced, else 'D<seq>:<count>' the retry of that append,
--           'M' mismatch, 'C<head>' conflict, 'X' cold, 'B' busy, 'S' look the identities up again
--
-- Journal entry <last seq>-0: v first version, n events, h chain after it, m header, e packed event…
-- Stream entry <version>-0: s seq, e packed event.

local p, reason = open_partition(ARGV[2])
if not p then return { NONCE, 'FENCED', reason } end

local JOURNAL = KEYS[2]
-- A call whose reply was lost may still be under way when its appends are sent again: it must not run after
-- that, or an append that was answered 409 could appear. So calls of one gateway run in order or not at all.
local latest = redis.call('HGET', KEYS[5], ARGV[8])
if latest and tonumber(latest) >= tonumber(ARGV[9]) then return { NONCE, 'FENCED', 'late' } end
redis.call('HSET', KEYS[5], ARGV[8], ARGV[9])

local window = tonumber(ARGV[3])
advance(p, JOURNAL, tonumber(ARGV[4]), ARGV[5])
if ARGV[6] ~= '0' then redis.call('XTRIM', JOURNAL, 'MINID', '~', ARGV[6]) end

-- Identities are remembered in two hashes by turns, `w` events each: what is older than the one before
-- the current is forgotten, and only a caller that looked in Postgres since then may go on.
local looked_up = tonumber(ARGV[7])
local bucket = math.floor(p.q / p.w)
local forgotten_to = (bucket - 1) * p.w
local stale = looked_up < forgotten_to

-- All identities in one go. A claim reads '<last seq>:<count>:<request digest>'.
local claimed = {}
local asked = tonumber(ARGV[11])
for turn = 3, 4 do
  for from = 12, 11 + asked, 4000 do
    local to = math.min(from + 3999, 11 + asked)
    local found = redis.call('HMGET', KEYS[turn], unpack(ARGV, from, to))
    for k = from, to do
      local claim = found[k - from + 1]
      if claim then claimed[ARGV[k]] = claim end
    end
  end
end

local heads, blocked = {}, {}

local function head_of(key, hint)
  local head = heads[key]
  if head then return head end
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if last then
    head = tonumber(string.sub(last[1], 1, -3)) -- '<version>-0'
  elseif hint ~= '' then
    -- Postgres said so, and nothing was evicted since: a missing stream has nothing uncommitted.
    local gen, known = string.match(hint, '^([^:]+):(%d+)$')
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
    local claim = claimed[ARGV[k]]
    if claim then
      if mine and claim ~= mine then return 'M' end
      mine = claim
      seen = seen + 1
    end
  end
  if not mine then return nil end
  local seq, count, theirs = string.match(mine, '^(%d+):(%d+):(.*)$')
  local asked_for = last - first + 1
  local but_minted = seen == asked_for - 1 and not claimed[ARGV[first]]
  if theirs ~= digest or not (seen == asked_for or but_minted) then return 'M' end
  return 'D' .. seq .. ':' .. count
end

-- What is to be written, a column each: stream, first version, events, last seq, chain, place in ARGV,
-- first and last identity, claim.
local w = 0
local w_key, w_version, w_n, w_q, w_h, w_at, w_first, w_last, w_claim = {}, {}, {}, {}, {}, {}, {}, {}, {}
local q, h = p.q, p.h

local function answer(key, at, first, last, n)
  if blocked[key] then return blocked[key] end
  local digest = ARGV[at + 3]
  local verdict = earlier(first, last, digest)
  if verdict then return verdict end
  if stale then
    blocked[key] = 'S'
    return 'S'
  end
  local head = head_of(key, ARGV[at + 1])
  if not head then
    blocked[key] = 'X'
    return 'X'
  end
  local expected = tonumber(ARGV[at])
  if (expected >= 0 and expected ~= head) or (expected == -2 and head == 0) then return 'C' .. whole(head) end
  if q > p.c and q - p.c + n > window then
    blocked[key] = 'B'
    return 'B'
  end
  local version = head + 1
  q = q + n
  h = redis.sha1hex(h .. ':' .. whole(version) .. ':' .. ARGV[at + 5])
  heads[key] = head + n
  local claim = whole(q) .. ':' .. n .. ':' .. digest
  for k = first, last do claimed[ARGV[k]] = claim end
  w = w + 1
  w_key[w], w_version[w], w_n[w], w_q[w], w_h[w] = key, version, n, q, h
  w_at[w], w_first[w], w_last[w], w_claim[w] = at, first, last, claim
  return version
end

local answers = {}
local at, first = 12 + asked, 12
for i = 1, tonumber(ARGV[10]) do
  local last = first + tonumber(ARGV[at + 2]) - 1
  local n = tonumber(ARGV[at + 4])
  answers[i] = answer(KEYS[5 + i], at, first, last, n)
  at = at + 7 + n
  first = last + 1
end

-- The event at `place` in ARGV, as the entry of its stream.
local function add(key, version, seq, place)
  redis.call('XADD', key, whole(version) .. '-0', 's', whole(seq), 'e', ARGV[place])
end

local function journal(i)
  local here = w_at[i]
  local entry = { 'v', whole(w_version[i]), 'n', w_n[i], 'h', w_h[i], 'm', ARGV[here + 6] }
  for k = 1, w_n[i] do
    entry[7 + 2 * k] = 'e'
    entry[8 + 2 * k] = ARGV[here + 6 + k]
  end
  redis.call('XADD', JOURNAL, whole(w_q[i]) .. '-0', unpack(entry))
end

if w > 0 then
  redis.call('HSET', META, 'torn', '1')
  local current, fields, f = bucket, {}, 0
  local function remember()
    if f > 0 then redis.call('HSET', KEYS[3 + current % 2], unpack(fields, 1, f)) end
    f = 0
  end
  for i = 1, w do
    local n, key, version, seq = w_n[i], w_key[i], w_version[i], w_q[i] - w_n[i]
    for k = 1, n do add(key, version + k - 1, seq + k, w_at[i] + 6 + k) end
    journal(i)
    local turn = math.floor(w_q[i] / p.w)
    if turn > current or f > 4000 then
      remember()
      if turn > current then
        current = turn
        redis.call('UNLINK', KEYS[3 + current % 2])
      end
    end
    for k = w_first[i], w_last[i] do
      fields[f + 1], fields[f + 2] = ARGV[k], w_claim[i]
      f = f + 2
    end
  end
  remember()
  redis.call('HSET', META, 'q', whole(q), 'h', h, 'torn', '')
end

return { NONCE, 'OK', whole(p.q), p.h, whole(q), h, whole(p.c), p.gen, unpack(answers) }
