-- Gives every append of the call its place, or says why not. Validates everything over an overlay first,
-- then writes: a script error rolls nothing back, so the writes stand between setting and clearing `torn`.
--
-- KEYS  1 meta, 2 journal, 3 and 4 identity hashes, 5 calls, 6… one stream for each append
-- ARGV  1 nonce, 2 epoch, 3 window (events that may be uncommitted), 4 and 5 seq and chain known committed,
--       6 trim the journal below this seq (0: don't), 7 seq at which the identities were looked up,
--       8 caller, 9 the caller's call number, 10 number of appends, then for each append:
--         expected, head hint ('' or '<gen>:<head>'), number of identities, identities…, request digest,
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

-- Parse once, and fetch all identities in one go.
local appends, wanted = {}, {}
local at = 11
for i = 1, tonumber(ARGV[10]) do
  local a = { expected = ARGV[at], hint = ARGV[at + 1], key = KEYS[5 + i], ids = {} }
  at = at + 3
  for k = 1, tonumber(ARGV[at - 1]) do
    a.ids[k] = ARGV[at]
    wanted[#wanted + 1] = ARGV[at]
    at = at + 1
  end
  a.digest, a.n, a.rows, a.header, a.first = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3], at + 4
  at = a.first + a.n
  appends[i] = a
end

local claimed = {}
if #wanted > 0 then
  for turn = 3, 4 do
    for from = 1, #wanted, 4000 do
      local to = math.min(from + 3999, #wanted)
      local found = redis.call('HMGET', KEYS[turn], unpack(wanted, from, to))
      for k = from, to do
        if found[k - from + 1] then claimed[wanted[k]] = found[k - from + 1] end
      end
    end
  end
end

local heads, blocked = {}, {}

local function head_of(a)
  local head = heads[a.key]
  if head then return head end
  local last = redis.call('XREVRANGE', a.key, '+', '-', 'COUNT', 1)[1]
  if last then
    head = tonumber(string.match(last[1], '^%d+'))
  elseif a.hint ~= '' then
    -- Postgres said so, and nothing was evicted since: a missing stream has nothing uncommitted.
    local gen, known = string.match(a.hint, '^(%d+):(%d+)$')
    if gen == p.gen then head = tonumber(known) end
  end
  heads[a.key] = head
  return head
end

-- A claim reads '<last seq>:<count>:<request digest>'.
local function earlier(a)
  local mine, seen = nil, 0
  for k = 1, #a.ids do
    local claim = claimed[a.ids[k]]
    if claim then
      if mine and claim ~= mine then return 'M' end
      mine = claim
      seen = seen + 1
    end
  end
  if not mine then return nil end
  local seq, count, digest = string.match(mine, '^(%d+):(%d+):(.*)$')
  -- The first identity is the minted event id, which a retry under a chosen one does not share.
  if digest ~= a.digest or (seen < #a.ids and not (seen == #a.ids - 1 and not claimed[a.ids[1]])) then
    return 'M'
  end
  return 'D' .. seq .. ':' .. count
end

local answers, writes = {}, {}
local q, h = p.q, p.h

local function answer(a)
  if blocked[a.key] then return blocked[a.key] end
  local verdict = earlier(a)
  if verdict then return verdict end
  if stale then
    blocked[a.key] = 'S'
    return 'S'
  end
  local head = head_of(a)
  if not head then
    blocked[a.key] = 'X'
    return 'X'
  end
  local expected = tonumber(a.expected)
  if (expected >= 0 and expected ~= head) or (expected == -2 and head == 0) then return 'C' .. whole(head) end
  if q > p.c and q - p.c + a.n > window then
    blocked[a.key] = 'B'
    return 'B'
  end
  a.version = head + 1
  q = q + a.n
  h = redis.sha1hex(h .. ':' .. whole(a.version) .. ':' .. a.rows)
  a.q, a.h = q, h
  heads[a.key] = head + a.n
  local claim = whole(q) .. ':' .. whole(a.n) .. ':' .. a.digest
  for k = 1, #a.ids do claimed[a.ids[k]] = claim end
  a.claim = claim
  writes[#writes + 1] = a
  return a.version
end

for i = 1, #appends do answers[i] = answer(appends[i]) end

if #writes > 0 then
  redis.call('HSET', META, 'torn', '1')
  local current = bucket
  local fields = {}
  local function flush()
    if #fields > 0 then redis.call('HSET', KEYS[3 + current % 2], unpack(fields)) end
    fields = {}
  end
  for i = 1, #writes do
    local a = writes[i]
    local entry = { 'v', whole(a.version), 'n', whole(a.n), 'h', a.h, 'm', a.header }
    for k = 0, a.n - 1 do
      local packed = ARGV[a.first + k]
      redis.call('XADD', a.key, whole(a.version + k) .. '-0', 's', whole(a.q - a.n + 1 + k), 'e', packed)
      entry[#entry + 1] = 'e'
      entry[#entry + 1] = packed
    end
    redis.call('XADD', JOURNAL, whole(a.q) .. '-0', unpack(entry))
    local turn = math.floor(a.q / p.w)
    if turn > current or #fields > 4000 then
      flush()
      if turn > current then
        current = turn
        redis.call('UNLINK', KEYS[3 + current % 2])
      end
    end
    for k = 1, #a.ids do
      fields[#fields + 1] = a.ids[k]
      fields[#fields + 1] = a.claim
    end
  end
  flush()
  redis.call('HSET', META, 'q', whole(q), 'h', h, 'torn', '')
end

return { NONCE, 'OK', whole(p.q), p.h, whole(q), h, whole(p.c), p.gen, unpack(answers) }
