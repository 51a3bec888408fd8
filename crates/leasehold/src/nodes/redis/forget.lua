-- KEYS fences of the record that the asker knows, locks …   ARGV bound
-- How many fences went: those below the bound, of locks that nobody owns.
if not ARGV[1] then
  return 'LOADED'
end
local record = redis.pcall('GET', 'leasehold:node')
if type(record) ~= 'string' or redis.sha1hex(record) ~= string.sub(KEYS[1], -40) then
  return {'STRANGER', type(record) == 'string' and record}
end
local gone = 0
for i = 2, #KEYS do
  local score = redis.call('ZSCORE', KEYS[1], KEYS[i])
  if score and tonumber(score) < tonumber(ARGV[1]) and redis.call('EXISTS', KEYS[i]) == 0 then
    gone = gone + redis.call('ZREM', KEYS[1], KEYS[i])
  end
end
return gone
