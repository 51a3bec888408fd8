-- KEYS line, seen   ARGV waiter, its ticket or '', life in ms
-- Enters the line, or tells that the waiter is still there: {ticket, 1 if first, others}.
-- Line: waiter -> ticket. Seen: waiter -> until when it counts as alive, in ms.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local moved = ARGV[2] ~= ''
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
  redis.call('ZREM', KEYS[1], gone)
  redis.call('ZREM', KEYS[2], gone)
  moved = true
end

local ticket = ARGV[2]
if ticket == '' then
  ticket = time[1] .. string.format('%06d', time[2])
end
redis.call('ZADD', KEYS[1], 'NX', ticket, ARGV[1])
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])

-- Whoever is first is told so; one whose process nobody listens for is gone.
local others = redis.call('ZCARD', KEYS[1]) - 1
local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
while moved and first ~= ARGV[1] do
  local process, number = string.match(first, '^(%x+)%.(%d+)$')
  if process and redis.call('PUBLISH', 'leasehold:turn:' .. process, number .. ' ' .. others) > 0 then
    break
  end
  redis.call('ZREM', KEYS[1], first)
  redis.call('ZREM', KEYS[2], first)
  others = others - 1
  first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
end
return {ticket, first == ARGV[1] and 1 or 0, others}
