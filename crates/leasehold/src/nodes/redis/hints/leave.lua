-- KEYS line, seen   ARGV waiter
-- Leaves the line, and tells whoever is first then. How many are left.
local was_first = redis.call('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[1]
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
local others = redis.call('ZCARD', KEYS[1]) - 1
while was_first and others >= 0 do
  local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  local process, number = string.match(first, '^(%x+)%.(%d+)$')
  if process and redis.call('PUBLISH', 'leasehold:turn:' .. process, number .. ' ' .. others) > 0 then
    break
  end
  -- Nobody listens for its process: it is gone.
  redis.call('ZREM', KEYS[1], first)
  redis.call('ZREM', KEYS[2], first)
  others = others - 1
end
return others + 1
