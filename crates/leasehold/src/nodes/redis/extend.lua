-- KEYS lock, identity, fences   ARGV identity, holder, token, ttl in ms, floor
local found = redis.call('MGET', KEYS[1], KEYS[2])
local owner = found[1]
if found[2] ~= ARGV[1] then
  return {'STRANGER', found[2]}
end

local score = redis.call('ZSCORE', KEYS[3], KEYS[1])
local fence = score or ARGV[5]
if tonumber(fence) > tonumber(ARGV[3]) then
  return {'SUPERSEDED', fence}
end
if owner and owner ~= ARGV[2] then
  return {'BUSY', owner, redis.call('PTTL', KEYS[1]), fence}
end

-- MGET shows a key of another type as absent.
if not owner and not redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4], 'NX') then
  return {'FOREIGN', redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1]), fence}
end
if not score or tonumber(score) < tonumber(ARGV[3]) then
  local raised = redis.pcall('ZADD', KEYS[3], ARGV[3], KEYS[1])
  if type(raised) == 'table' then
    if not owner then
      redis.call('DEL', KEYS[1])
    end
    return raised
  end
end
if owner then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4])
end
local time = redis.call('TIME')
return {owner and 'EXTENDED' or 'HEALED', time[1], time[2]}
