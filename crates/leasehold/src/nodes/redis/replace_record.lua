-- KEYS identity   ARGV the new record [, the one that is expected]
-- GET fails on a key of another type, which is then left alone.
if redis.call('GET', KEYS[1]) ~= (ARGV[2] or false) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
return 1
