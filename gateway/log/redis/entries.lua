-- A part of a stream, or of a journal, as it stands, believed or not: for audits and repairs. Writes nothing.
--
-- KEYS  1 meta, 2 stream or journal
-- ARGV  1 nonce, 2 and 3 first and last id as XRANGE takes them, 4 most entries, 5 '1' for newest first
-- returns {nonce, epoch, q, h, c, chain at c, 1 if this is the server on which the epoch began, else 0,
--         entries as XRANGE gives them}; what is missing is ''

local m = redis.call('HMGET', META, 'epoch', 'q', 'h', 'c', 'ch', 'fence')
for i = 1, 5 do m[i] = m[i] or '' end
local master, replid = server_identity()
local same = master and replid == m[6] and 1 or 0
local entries
if ARGV[5] == '1' then
  entries = redis.call('XREVRANGE', KEYS[2], ARGV[3], ARGV[2], 'COUNT', ARGV[4])
else
  entries = redis.call('XRANGE', KEYS[2], ARGV[2], ARGV[3], 'COUNT', ARGV[4])
end
return { NONCE, m[1], m[2], m[3], m[4], m[5], same, entries }
