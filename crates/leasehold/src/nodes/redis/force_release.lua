-- KEYS lock, fences of the record that the asker knows
-- ARGV holder, fence seen, the next fence, floor
if not ARGV[1] then
  return 'LOADED'
end
local record = redis.pcall('GET', 'leasehold:node')
if type(record) ~= 'string' or redis.sha1hex(record) ~= string.sub(KEYS[2], -40) then
  return {'STRANGER', type(record) == 'string' and record}
end
-- An error, which is a table, if the key is of another type.
local owner = redis.pcall('GET', KEYS[1])
local fence = redis.call('ZSCORE', KEYS[2], KEYS[1]) or ARGV[4]
local next = ARGV[3]
if tonumber(fence) > tonumber(ARGV[2]) then
  if owner ~= ARGV[1] then
    return {'SUPERSEDED', fence}
  end
  -- All digits of a number below 2^53, unlike tostring.
  next = string.format('%.0f', math.min(tonumber(fence) + 1, 9007199254740991))
end
if owner and owner ~= ARGV[1] then
  return {'NOT_HELD', type(owner) == 'string' and owner, redis.call('TYPE', KEYS[1]).ok}
end
redis.call('ZADD', KEYS[2], next, KEYS[1])
if owner then
  redis.call('DEL', KEYS[1])
  return 1
end
return {'NOT_HELD', false, 'none'}
