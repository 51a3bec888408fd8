-- KEYS identity, fences of the new record [, of the old one]
-- ARGV the new record [, the one that is expected]
-- The fences go by the record that they were given under: whoever knows an older one finds none.
-- GET fails on a key of another type, which is then left alone.
if not ARGV[1] then
  return 'LOADED'
end
if redis.call('GET', KEYS[1]) ~= (ARGV[2] or false) then
  return 0
end
if KEYS[3] and redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('RENAME', KEYS[3], KEYS[2])
end
redis.call('SET', KEYS[1], ARGV[1])
return 1
