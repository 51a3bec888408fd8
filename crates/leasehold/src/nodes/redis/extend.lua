-- KEYS lock, fences of the record that the asker knows
-- ARGV holder, ttl in ms, floor, token [, the next token]
if not ARGV[1] then
  return 'LOADED'
end
local score = redis.call('ZSCORE', KEYS[2], KEYS[1])
-- A fence that is there shows that the record is still the same.
if not score then
  local record = redis.pcall('GET', 'leasehold:node')
  if type(record) ~= 'string' or redis.sha1hex(record) ~= string.sub(KEYS[2], -40) then
    return {'STRANGER', type(record) == 'string' and record}
  end
end

local next = ARGV[5] or ARGV[4]
local fence = score or ARGV[3]
if tonumber(fence) > tonumber(next) then
  return {'SUPERSEDED', fence}
end
-- An error, which is a table, if the key is of another type.
local owner = redis.pcall('GET', KEYS[1])
if type(owner) == 'string' and owner ~= ARGV[1] then
  return {'BUSY', owner, redis.call('PTTL', KEYS[1]), fence}
end
if owner ~= ARGV[1] then
  if tonumber(fence) > tonumber(ARGV[4]) then
    return {'SUPERSEDED', fence}
  end
  if owner then
    return {'FOREIGN', redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1]), fence}
  end
end

if not score or tonumber(score) < tonumber(next) then
  local raised = redis.pcall('ZADD', KEYS[2], next, KEYS[1])
  if type(raised) == 'table' then
    return raised
  end
end
if not owner then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
elseif
  -- Never shorter. A server that is full refuses SET, but lets a key live longer.
  redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2])
  and redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]).err
then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local time = redis.call('TIME')
return {owner and 'EXTENDED' or 'HEALED', time[1], time[2]}
