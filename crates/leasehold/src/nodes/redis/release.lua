-- KEYS lock   ARGV holder
-- 1 if released. A key of another type is an error to GET, and not ours.
local owner = redis.pcall('GET', KEYS[1])
if owner == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
return {'NOT_HELD', type(owner) == 'string' and owner, redis.call('TYPE', KEYS[1]).ok}
