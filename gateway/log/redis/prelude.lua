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

-- The same, always as text, and cheap below 1e14: no printf of a double, which costs as much as a small command.
local char, floor, thousands = string.char, math.floor, {}
local function text(number)
  if number < 10 then return char(48 + number) end
  if number < 100 then
    local tens = floor(number / 10)
    return char(48 + tens, 48 + number - 10 * tens)
  end
  local high = floor(number / 1000)
  local low = number - 1000 * high
  local hundreds = floor(low / 100)
  local tens = floor(low / 10)
  local digits = char(48 + hundreds, 48 + tens - 10 * hundreds, 48 + low - 10 * tens)
  if high == 0 then return digits end
  local front = thousands[high]
  if not front then
    front = string.format('%.0f', high)
    thousands[high] = front
  end
  return front .. digits
end

local function server_identity()
  local info = redis.call('INFO', 'replication')
  local master = string.find(info, 'role:master', 1, true) ~= nil
  return master, string.match(info, 'master_replid:(%x+)')
end

-- Identity of the server first, then epoch and torn flag: nothing else of the partition may be believed
-- before these hold. Returns the meta fields q, h, c, e (the highest seq of an event that was evicted), bucket
-- size, t (all declared tags behind that seq are in the tag hashes), tq (up to this one) and the bucket of the newer one
-- of these hashes; or nil and the reason. `as_of` is '<epoch>.<q>', the moment at which what a script tells is true.
local function open_partition(epoch)
  local master, replid = server_identity()
  if not master then return nil, 'replica' end
  local m = redis.call('HMGET', META, 'epoch', 'fence', 'torn', 'q', 'h', 'c', 'e', 'w', 'past', 'format',
    't', 'turn', 'tq')
  if not m[1] then return nil, 'missing' end
  if (m[10] or '1') ~= FORMAT then return nil, 'format' end
  if m[1] ~= epoch then return nil, 'epoch' end
  if m[2] ~= replid then return nil, 'fence' end
  if m[3] ~= '' then return nil, 'torn' end
  return { q = tonumber(m[4]), h = m[5], c = tonumber(m[6]), e = tonumber(m[7]), w = tonumber(m[8]),
    past = m[9] or '', t = tonumber(m[11] or ''), turn = tonumber(m[12] or ''), tq = tonumber(m[13] or ''),
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

-- Moves the committed watermark to `seq` if this Redis' chain there is the one that Postgres committed. False: this
-- Redis lacks what was committed in its own epoch, so it was set back.
local function advance(p, journal, seq, chain)
  if seq > p.q then return false end
  if seq <= p.c then return true end
  local here
  if seq == p.q then
    here = p.h
  else
    here = string.match(p.past, ' ' .. text(seq) .. ':(%x*)') or chain_in(journal, text(seq))
  end
  if here == chain then
    p.c = seq
    redis.call('HSET', META, 'c', whole(seq), 'ch', chain)
  end
  return true
end

-- Between these two, writes go neither into the append-only file nor to replicas: streams are a copy of what the
-- journal and Postgres hold, and a server that restarts or is promoted ends the epoch that they belong to
-- (docs/decisions/0010, 0023).
local function here_alone()
  redis.set_repl(redis.REPL_NONE)
end
local function everywhere()
  redis.set_repl(redis.REPL_ALL)
end
