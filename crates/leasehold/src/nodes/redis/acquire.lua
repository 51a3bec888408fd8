-- KEYS lock, identity, fences   ARGV identity, holder, ttl in ms, floor, proposal
-- 1 if granted. Fences travel as the strings they came as: a Lua number prints 14 digits only.
local found = redis.call('MGET', KEYS[1], KEYS[2])
local owner = found[1]
if found[2] ~= ARGV[1] then
  return {'STRANGER', found[2]}
end

local function fence()
  return redis.call('ZSCORE', KEYS[3], KEYS[1]) or ARGV[4]
end
-- MGET shows a key of another type as absent.
local function foreign()
  return {'FOREIGN', redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1]), fence()}
end

if owner and owner ~= ARGV[2] then
  return {'BUSY', owner, redis.call('PTTL', KEYS[1]), fence()}
end
-- ZADD knows nothing of the floor. Askers stay above it, so this look is rare.
if tonumber(ARGV[5]) <= tonumber(ARGV[4]) then
  if not owner and redis.call('EXISTS', KEYS[1]) == 1 then
    return foreign()
  end
  local now = fence()
  if tonumber(ARGV[5]) <= tonumber(now) then
    return {'BEHIND', now}
  end
end

if not owner and not redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3], 'NX') then
  return foreign()
end
-- 1 exactly if the fence went strictly up.
local raised = redis.pcall('ZADD', KEYS[3], 'GT', 'CH', ARGV[5], KEYS[1])
if raised == 1 then
  if owner then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  end
  return 1
end
if not owner then
  redis.call('DEL', KEYS[1])
end
if raised == 0 then
  return {'BEHIND', fence()}
end
return raised
