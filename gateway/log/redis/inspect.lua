-- What this server says of the partition, believed or not.
--
-- KEYS  1 meta, 2 journal and 3 heads of the epoch that Postgres names
-- ARGV  1 nonce, 2 epoch, 3 seq that Postgres names
-- returns {nonce, 1 if master, replid, epoch, fence, torn, q, h, c, chain at c, chain at seq, format, the one that this
--         script knows};
--         what is missing is ''

local master, replid = server_identity()
local m = redis.call('HMGET', META, 'epoch', 'fence', 'torn', 'q', 'h', 'c', 'ch', 'format')
for i = 1, 8 do m[i] = m[i] or '' end
local chain = ''
if m[1] == ARGV[2] then
  if redis.call('HGET', KEYS[3], '') ~= ARGV[2] then m[3] = 'heads' end
  if m[4] == ARGV[3] then
    chain = m[5]
  elseif m[6] == ARGV[3] then
    chain = m[7]
  else
    chain = chain_in(KEYS[2], ARGV[3]) or ''
  end
end
return { NONCE, master and 1 or 0, replid, m[1], m[2], m[3], m[4], m[5], m[6], m[7], chain, m[8],
  FORMAT }
