-- KEYS lock   ARGV holder
-- 1 if released. MGET, because GET fails on a key of another type.
local owner = redis.call('MGET', KEYS[1])[1]
if owner == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
return {'NOT_HELD', owner, redis.call('TYPE', KEYS[1]).ok}
