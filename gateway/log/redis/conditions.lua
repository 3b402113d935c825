-- Conditions of a call, and the tags that Redis remembers. Put in front of sequence.lua, which opens them for a call that
-- has conditions or declared tags: for any other call, nothing here is done but that two functions are made.

-- Events of bodies by their tags and types, made for a call whose conditions search the journal.
-- returns two functions:
--   add(s, at, last): takes in the events of the body at `at` in `s`, the last of which is at `last`; returns where the
--     body ends, and the seq before its first event
--   first_match(condition): the first seq behind what Postgres was asked about at which an event matches it, or nil
local function open_index()
  local sub, cut, byte, format, unpack = string.sub, struct.unpack, string.byte, string.format, unpack

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

  local function add(s, at, last)
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

  return add, first_match
end

-- KEYS and ARGV are those of sequence.lua. Returns what it asks and says of its appends, in the order of their numbers:
--   fails(number): the verdict on an append whose condition fails, or nil
--   moved(key, q): events up to q are placed in this stream
--   placed(number, from, q): it is placed, its body begins at `from` in ARGV 12, its last event is at q
--   write(q): to be called among the writes
local function open_conditions(p, window, own_streams)
  local KEYS, ARGV, call, unpack = KEYS, ARGV, redis.call, unpack
  local sub, match, cut, max = string.sub, string.match, struct.unpack, math.max
  local JOURNAL, HEADS, BODIES, OWN = KEYS[2], KEYS[6], ARGV[12], own_streams + 2

  -- Mostly the tags tell that nothing matches. Else: what was sequenced behind the seq up to which Postgres was asked is
  -- all in the journal, and what this call has placed is in BODIES: its events are indexed by tag and by type, once for
  -- all conditions of the call.
  local NEAR = 100 -- events of the journal that are read for a condition that Postgres was not asked about
  local conditions, facts, next_fact, next_tag, number, count, told, size = {}, ARGV[15], 1, 1, nil, nil, nil, nil
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

  local placed, placed_bodies, placed_last = 0, {}, {} -- of the appends of this call: where they are in BODIES, their last seq
  local index_body, first_match, whole_journal

  -- Takes in what is in the journal behind `oldest`; false where it is not all there.
  local function index_journal()
    local oldest
    index_body, first_match = open_index()
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

  -- Tags. Two hashes by turns, `w` events each, have the last seq of every declared tag of what was sequenced behind
  -- `tags_from`; and what looks told of tags, '<last seq>:<seq up to which that is so>'. A tag may be the own one of a
  -- stream as well: of streams with events behind `own_from`, the heads are here, and their last entries have the seq.
  --
  -- A gateway of an earlier release remembers no tags: what it has sequenced ends what is known of them.
  local tags_end, known_from, newer_turn = p.tq ~= p.q, p.q, nil
  if not tags_end then
    local of = call('HMGET', META, 't', 'turn')
    known_from, newer_turn = tonumber(of[1]), tonumber(of[2])
  end
  local tags_from, own_from = max(known_from, newer_turn and (newer_turn - 1) * p.w or 0), max(known_from, p.e)
  local function hash_of(turn)
    return KEYS[own_streams + 1 + turn % 2]
  end

  local ASKED_TAGS, DECLARED = ARGV[16], ARGV[17]
  local asked_tags = #ASKED_TAGS / 16
  local tag_at, last_of, as_of, head_of_own, places_of = {}, {}, {}, {}, {}
  for k = 1, asked_tags do
    tag_at[k] = sub(ASKED_TAGS, 16 * k - 15, 16 * k)
    places_of[tag_at[k]] = places_of[tag_at[k]] or {}
    table.insert(places_of[tag_at[k]], k)
  end
  for from = 1, asked_tags, 4000 do
    local to = math.min(from + 3999, asked_tags)
    for turn = 0, tags_end and -1 or 1 do -- the newer one first
      local found = call('HMGET', hash_of((newer_turn or 0) + turn), unpack(tag_at, from, to))
      for k = from, to do
        local told = found[k - from + 1]
        if told and not last_of[k] then
          local last, seq = match(told, '^(%d+):?(%d*)$')
          last_of[k] = tonumber(last)
          as_of[k] = tonumber(seq) or last_of[k]
        end
      end
    end
    local found = call('HMGET', HEADS, unpack(KEYS, OWN + from, OWN + to))
    for k = from, to do head_of_own[k] = found[k - from + 1] end
  end

  -- The last seq of the stream that tag `k` is the own one of; nil: it has no head here.
  local own_last = {}
  local function last_of_own(k)
    local key = KEYS[OWN + k]
    if not own_last[key] and head_of_own[k] then
      local newest = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
      local here = newest and match(newest[1], '^%d+') == head_of_own[k]
      own_last[key] = here and tonumber(newest[2][1]) or math.huge -- it was deleted by hand: it may be any
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
    if not condition.old and not index_body then whole_journal = index_journal() end
    if condition.old or not whole_journal then return 'L' .. text(max(tags_from, own_from)) end
    local seq = first_match(condition)
    return seq and 'K' .. text(seq)
  end

  -- The declared tags of each append, by its number: where they begin in ARGV 17, and how many there are.
  local tags_of, remember, r = {}, {}, 0
  local next_tags = 1
  while next_tags <= #DECLARED do
    local number, count, from = cut('>I4I4', DECLARED, next_tags)
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
        remember_tag(tag_at[k], max(last, last_of[k] or 0), of.asked)
      end
    end
  end

  local function fails(number)
    local condition = conditions[number]
    return condition and condition_fails(condition)
  end

  local function moved(key, q)
    own_last[key] = q
  end

  local function remember_append(number, from, q)
    placed = placed + 1
    placed_bodies[placed], placed_last[placed] = from, q
    if index_body then index_body(BODIES, from, q) end
    local condition, of = conditions[number], tags_of[number]
    if condition and condition.lasts then remember_look(condition) end
    if of then
      for at = of.from, of.from + 16 * of.count - 1, 16 do remember_tag(sub(DECLARED, at, at + 15), q, q) end
    end
  end

  local function write(q)
    local turn = newer_turn
    if tags_end then call('UNLINK', hash_of(0), hash_of(1)) end
    if r > 0 then
      turn = math.floor(q / p.w)
      local turns = turn - (newer_turn or turn)
      if turns > 0 then call('UNLINK', hash_of(turn)) end
      if turns > 1 then call('UNLINK', hash_of(turn + 1)) end
      for k = 1, r, 4000 do call('HSET', hash_of(turn), unpack(remember, k, math.min(k + 3999, r))) end
    end
    if tags_end or turn ~= newer_turn then
      call('HSET', META, 't', text(known_from), 'turn', turn and text(turn) or '')
    end
  end

  return { fails = fails, moved = moved, placed = remember_append, write = write }
end

