-- Whether this user may run the commands that the other scripts use: on a key of its own, which is gone afterwards.
--
-- KEYS  1 meta, 2 a hash and 3 a stream that nobody uses
-- ARGV  1 nonce
-- returns {nonce, 'OK'}; a command that is not permitted is the error's text

server_identity()
redis.call('HMGET', META, 'epoch')
redis.call('HGET', META, 'epoch')
redis.call('HSET', KEYS[2], 'a', '1')
redis.call('UNLINK', KEYS[2])
redis.call('XADD', KEYS[3], '1-0', 'a', '1')
redis.call('XRANGE', KEYS[3], '-', '+')
redis.call('XREVRANGE', KEYS[3], '+', '-')
redis.call('XTRIM', KEYS[3], 'MINID', '~', '1')
redis.call('DEL', KEYS[3])
return { NONCE, 'OK' }
