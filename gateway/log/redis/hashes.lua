-- Fields of hashes, whichever they are: one reply costs its reader less than one of each key. Writes nothing.
--
-- KEYS  the hashes
-- ARGV  the fields
-- returns the values, those of a hash with spaces between them, on a line of its own; an empty one where any is missing

local lines = {}
for n = 1, #KEYS do
  local values = redis.call('HMGET', KEYS[n], unpack(ARGV))
  local missing = false
  for i = 1, #values do missing = missing or not values[i] end
  lines[n] = missing and '' or table.concat(values, ' ')
end
return table.concat(lines, '\n')
