-- Reads the schedules that are due, earliest first, as many as fit into the byte limit.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash
-- ARGV: now (ms or ''), ahead (ms), offset (schedules to skip), limit (schedules), byte_limit
-- Returns: now (ms), how many are due (up to the limit), then per schedule: name, next occurrence (ms), spec, state
-- Re-run: reads only.
-- Uses: clock
local schedules, schedule_specs, schedule_states = unpack(KEYS)
local override, ahead, offset, limit, byte_limit = unpack(ARGV, 1, 5)

local now = math.floor(clock(override) / 1000)
local due = redis.call('ZRANGEBYSCORE', schedules, '-inf', now + ahead, 'WITHSCORES', 'LIMIT', offset, limit)
local found, size = {now, #due / 2}, 0
for i = 1, #due, 2 do
  local spec = redis.call('HGET', schedule_specs, due[i]) or ''
  size = size + #spec
  if size > tonumber(byte_limit) and size > #spec then break end
  local state = redis.call('HGET', schedule_states, due[i]) or ''
  local n = #found
  found[n + 1], found[n + 2], found[n + 3], found[n + 4] = due[i], due[i + 1], spec, state
end
return found
