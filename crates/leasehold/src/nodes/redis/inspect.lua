-- KEYS lock
-- What GET, PTTL and TYPE say of it, and its fence. GET's error for a key of another type is left out.
local record = redis.pcall('GET', 'leasehold:node')
local score = type(record) == 'string'
  and redis.call('ZSCORE', 'leasehold:fences:' .. redis.sha1hex(record), KEYS[1])
local value = redis.pcall('GET', KEYS[1])
return {
  type(value) == 'string' and value,
  redis.call('PTTL', KEYS[1]),
  redis.call('TYPE', KEYS[1]).ok,
  score
}
