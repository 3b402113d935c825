-- Put in front of every script of the append protocol.
-- KEYS[1] is the partition's meta hash, ARGV[1] the caller's nonce (first in every reply), ARGV[2] its epoch.

-- How this partition's keys are laid out: meta, journal, streams, identities. An epoch's keys are all of the format
-- that its meta hash names; without a name it is 1. What another release has written is not believed.
local FORMAT = '2'

local META = KEYS[1]
local NONCE = ARGV[1]

-- Lua numbers are doubles, and from 1e14 on `..` and tostring write them with an exponent. Below, a number
-- may stand as it is, which is several times cheaper than formatting it.
local function whole(number)
  if number < 1e14 then return number end
  return string.format('%.0f', number)
end

-- The same, always as text, and cheap below 1e14: no printf of a double, which costs as much as a small command, and no
-- call of a function, which costs as much as two concatenations.
local find, match, thousands = string.find, string.match, {}
local DIGITS = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local function text(number)
  if number < 10 then return DIGITS[number] end
  local ones = number % 10
  if number < 100 then return DIGITS[(number - ones) / 10] .. DIGITS[ones] end
  local low, tens = number % 1000, number % 100 - ones
  local high, hundreds = (number - low) / 1000, low - tens - ones
  local front = high == 0 and '' or thousands[high]
  if not front then
    front = string.format('%.0f', high)
    thousands[high] = front
  end
  return front .. DIGITS[hundreds / 100] .. DIGITS[tens / 10] .. DIGITS[ones]
end

local function server_identity()
  local info = redis.call('INFO', 'replication')
  local _, before = find(info, 'master_replid:', 1, true)
  local replid = before and match(info, '^%x+', before + 1)
  return find(info, 'role:master', 1, true) ~= nil, replid
end

-- Identity of the server first, then epoch and torn flag: nothing else of the partition may be believed
-- before these hold. Returns the meta fields q, h, c, e (the highest seq of an event that was evicted), bucket
-- size, tq (up to that seq all declared tags are in the tag hashes); or nil and the reason. `as_of` is '<epoch>.<q>', the moment at which what a script tells is true.
local function open_partition(epoch)
  local master, replid = server_identity()
  if not master then return nil, 'replica' end
  local m = redis.call('HMGET', META, 'epoch', 'fence', 'torn', 'q', 'h', 'c', 'e', 'w', 'past', 'format',
    'tq')
  if not m[1] then return nil, 'missing' end
  if (m[10] or '1') ~= FORMAT then return nil, 'format' end
  if m[1] ~= epoch then return nil, 'epoch' end
  if m[2] ~= replid then return nil, 'fence' end
  if m[3] ~= '' then return nil, 'torn' end
  return { q = tonumber(m[4]), h = m[5], c = tonumber(m[6]), e = tonumber(m[7]), w = tonumber(m[8]),
    past = m[9] or '', tq = tonumber(m[11] or ''),
    as_of = epoch .. '.' .. m[4] }
end

-- Whether what Postgres said of a stream that was not here, as of '<epoch>.<q>', still holds: all its events up to
-- that q were committed when Postgres was asked, and a later one is here, or was evicted since.
local function holds(as_of, p, epoch)
  local then_in, then_q = string.match(as_of, '^(%d+)%.(%d+)$')
  return then_in == epoch and tonumber(then_q) >= p.e
end

-- The chain after an append that ends at `seq` and is in the journal.
local function chain_in(journal, seq)
  local entry = redis.call('XRANGE', journal, seq, '+', 'COUNT', 1)[1]
  return entry and string.match(' ' .. entry[2][1], ' ' .. seq .. ':[%d,]+:(%x*)')
end

-- Where the last calls began, ' <q>:<h>' for each: commits mostly end there, and so the journal's entry of a whole
-- call need not be read to see its chain.
local function past_and(p)
  return string.sub(p.past .. ' ' .. text(p.q) .. ':' .. p.h, -480)
end

-- Moves the committed watermark to `seq` if this Redis' chain there is the one that Postgres committed: then `ch` is that
-- chain, and the caller writes both. False: this Redis lacks what was committed in its own epoch, so it was set back.
local function follow(p, journal, seq, chain)
  if seq > p.q then return false end
  if seq <= p.c then return true end
  local here
  if seq == p.q then
    here = p.h
  else
    local _, before = find(p.past, ' ' .. text(seq) .. ':', 1, true)
    here = before and match(p.past, '^%x*', before + 1) or chain_in(journal, text(seq))
  end
  if here == chain then
    p.c, p.ch = seq, chain
  end
  return true
end

-- The same, written at once.
local function advance(p, journal, seq, chain)
  if not follow(p, journal, seq, chain) then return false end
  if p.ch then redis.call('HSET', META, 'c', whole(p.c), 'ch', p.ch) end
  return true
end

-- Between these two, writes go neither into the append-only file nor to replicas: a server that restarts or is promoted
-- ends the epoch that they belong to (docs/decisions/0010, 0023). Streams are a copy of what the journal and Postgres
-- hold; identities, numbers of calls and tags are of use in their epoch only.
local function here_alone()
  redis.set_repl(redis.REPL_NONE)
end
local function everywhere()
  redis.set_repl(redis.REPL_ALL)
end
