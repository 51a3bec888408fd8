-- KEYS [identity; none in cluster mode, where it may be on another server]
-- {seconds, microseconds, record or false, INFO}: who this server is, all of one moment. A proxy that
-- answers TIME or INFO by itself, or sends two commands to two servers, cannot come in between.
local time = redis.call('TIME')
local info = {}
for _, section in ipairs({'server', 'replication', 'memory', 'persistence', 'cluster'}) do
  info[#info + 1] = redis.call('INFO', section)
end
local record = KEYS[1] and redis.call('GET', KEYS[1]) or false
return {time[1], time[2], record, table.concat(info, '\r\n')}
