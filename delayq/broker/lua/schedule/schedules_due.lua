-- Reads the schedules that are due, earliest first, until it has read as many bytes as the limit.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash
-- ARGV: now (ms or ''), ahead (ms), offset (schedules to skip), limit (schedules), byte_limit
-- Returns: now (ms), how many are due (up to the limit), then per schedule: name, next occurrence (ms), spec, state
-- Re-run: reads only.
-- Uses: bytes, clock
local schedules, schedule_specs, schedule_states = unpack(KEYS)
local override, ahead, offset, limit, byte_limit = unpack(ARGV, 1, 5)

local now = math.floor(clock(override) / 1000)
local due = redis.call('ZRANGEBYSCORE', schedules, '-inf', now + ahead, 'WITHSCORES', 'LIMIT', offset, limit)
local found = {now, #due / 2}
bytes_left = tonumber(byte_limit)
for i = 1, #due, 2 do
  if bytes_left <= 0 then break end
  local spec = read_payload(schedule_specs, due[i]) or ''
  local state = redis.call('HGET', schedule_states, due[i]) or ''
  local n = #found
  found[n + 1], found[n + 2], found[n + 3], found[n + 4] = due[i], due[i + 1], spec, state
end
return found
