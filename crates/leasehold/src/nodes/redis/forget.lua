-- KEYS fences, identity, locks …   ARGV identity, bound
-- How many fences went: those below the bound, of locks that nobody owns.
local found = redis.call('MGET', KEYS[2])[1]
if found ~= ARGV[1] then
  return {'STRANGER', found}
end
local gone = 0
for i = 3, #KEYS do
  local score = redis.call('ZSCORE', KEYS[1], KEYS[i])
  if score and tonumber(score) < tonumber(ARGV[2]) and redis.call('EXISTS', KEYS[i]) == 0 then
    gone = gone + redis.call('ZREM', KEYS[1], KEYS[i])
  end
end
return gone
