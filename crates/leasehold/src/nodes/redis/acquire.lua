-- KEYS lock, fences of the record that the asker knows
-- ARGV holder, ttl in ms, proposal [, floor, if the proposal is not above it]
-- 1 if granted. Fences travel as the strings they came as: a Lua number prints 14 digits only.
if not ARGV[1] then
  return 'LOADED'
end
local is_new = not ARGV[4] and redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX')
-- 1 exactly if the fence was there, so that the record is still the same, and went strictly up.
if is_new and redis.pcall('ZADD', KEYS[2], 'XX', 'GT', 'CH', ARGV[3], KEYS[1]) == 1 then
  return 1
end
-- A further round, or a lease that is handed over.
local owner = not is_new and redis.pcall('GET', KEYS[1])
if
  owner == ARGV[1]
  and redis.pcall('ZADD', KEYS[2], 'XX', 'GT', 'CH', ARGV[3], KEYS[1]) == 1
then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end

local record = redis.pcall('GET', 'leasehold:node')
local is_same = type(record) == 'string' and redis.sha1hex(record) == string.sub(KEYS[2], -40)
local score = redis.pcall('ZSCORE', KEYS[2], KEYS[1])
local raised
if is_new then
  if is_same and not score then
    raised = redis.pcall('ZADD', KEYS[2], ARGV[3], KEYS[1])
    if raised == 1 then
      return 1
    end
  end
  redis.call('DEL', KEYS[1])
end
if not is_same then
  return {'STRANGER', type(record) == 'string' and record}
end
if type(raised or score) == 'table' then
  return raised or score
end

if type(owner) == 'table' then
  return {'FOREIGN', redis.call('TYPE', KEYS[1]).ok, redis.call('PTTL', KEYS[1]), score}
end
if owner and owner ~= ARGV[1] then
  return {'BUSY', owner, redis.call('PTTL', KEYS[1]), score}
end
local fence = score or ARGV[4]
if fence and tonumber(ARGV[3]) <= tonumber(fence) then
  return {'BEHIND', fence}
end
redis.call('ZADD', KEYS[2], ARGV[3], KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
