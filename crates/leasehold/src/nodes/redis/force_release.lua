-- KEYS lock, identity, fences   ARGV identity, holder, fence seen, the next fence, floor
local found = redis.call('MGET', KEYS[1], KEYS[2])
local owner = found[1]
if found[2] ~= ARGV[1] then
  return {'STRANGER', found[2]}
end
local fence = redis.call('ZSCORE', KEYS[3], KEYS[1]) or ARGV[5]
local next = ARGV[4]
if tonumber(fence) > tonumber(ARGV[3]) then
  if owner ~= ARGV[2] then
    return {'SUPERSEDED', fence}
  end
  -- All digits of a number below 2^53, unlike tostring.
  next = string.format('%.0f', math.min(tonumber(fence) + 1, 9007199254740991))
end
-- A key of another type, which MGET shows as absent, is another's, too.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and owner ~= ARGV[2] then
  return {'NOT_HELD', owner, kind}
end
redis.call('ZADD', KEYS[3], next, KEYS[1])
if owner then
  redis.call('DEL', KEYS[1])
  return 1
end
return {'NOT_HELD', false, kind}
