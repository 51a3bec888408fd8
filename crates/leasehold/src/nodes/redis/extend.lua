-- KEYS lock, identity, fences   ARGV identity, holder, ttl in ms, floor, token [, the next token]
local found = redis.call('MGET', KEYS[1], KEYS[2])
local owner = found[1]
if found[2] ~= ARGV[1] then
  return {'STRANGER', found[2]}
end

local next = ARGV[6] or ARGV[5]
local score = redis.call('ZSCORE', KEYS[3], KEYS[1])
local fence = score or ARGV[4]
if tonumber(fence) > tonumber(next) then
  return {'SUPERSEDED', fence}
end
if owner and owner ~= ARGV[2] then
  return {'BUSY', owner, redis.call('PTTL', KEYS[1]), fence}
end
if not owner then
  if tonumber(fence) > tonumber(ARGV[5]) then
    return {'SUPERSEDED', fence}
  end
  -- MGET shows a key of another type as absent.
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return {'FOREIGN', redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1]), fence}
  end
end

if not score or tonumber(score) < tonumber(next) then
  local raised = redis.pcall('ZADD', KEYS[3], next, KEYS[1])
  if type(raised) == 'table' then
    return raised
  end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
local time = redis.call('TIME')
return {owner and 'EXTENDED' or 'HEALED', time[1], time[2]}
