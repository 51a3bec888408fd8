-- KEYS [identity; none in cluster mode, where it may be on another server]
-- {seconds, microseconds, record or false, INFO, highest fence that is not spent or '0', highest fence
-- or '0', false}: who this server is, all of one moment. A proxy that answers TIME or INFO by itself, or
-- sends two commands to two servers, cannot come in between.
local time = redis.call('TIME')
local info = {}
for _, section in ipairs({'server', 'replication', 'memory', 'persistence', 'cluster'}) do
  info[#info + 1] = redis.call('INFO', section)
end
local record = KEYS[1] and redis.call('GET', KEYS[1]) or false
-- The highest fence of any lock, up to `most`.
local function highest(most)
  local fences = record and 'leasehold:fences:' .. redis.sha1hex(record)
  local top = fences
    and redis.call('ZREVRANGEBYSCORE', fences, most, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return top or '0'
end
local usable = highest('9006649498927104')
return {time[1], time[2], record, table.concat(info, '\r\n'), usable, highest('+inf'), false}
