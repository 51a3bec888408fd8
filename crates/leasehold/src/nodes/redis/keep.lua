-- KEYS lock, fences of the record that the asker knows
-- ARGV holder, ttl in ms, the lowest fence that it may have, the highest
-- Whoever asks may have made all of it up: only the time of such an owner is written, nothing else.
if not ARGV[1] then
  return 'LOADED'
end
local fence = redis.call('ZSCORE', KEYS[2], KEYS[1])
-- A fence that is there shows that the record is still the same.
if not fence then
  local record = redis.pcall('GET', 'leasehold:node')
  if type(record) ~= 'string' or redis.sha1hex(record) ~= string.sub(KEYS[2], -40) then
    return {'STRANGER', type(record) == 'string' and record}
  end
end

local owner = redis.pcall('GET', KEYS[1])
if
  owner ~= ARGV[1]
  or not fence
  or tonumber(fence) < tonumber(ARGV[3])
  or tonumber(fence) > tonumber(ARGV[4])
then
  return {'NOT_HELD', type(owner) == 'string' and owner, redis.call('TYPE', KEYS[1]).ok}
end
-- Never shorter.
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local time = redis.call('TIME')
return {'EXTENDED', time[1], time[2]}
