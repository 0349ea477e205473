-- Removes schedules; keeps the messages that they have fired. Stops when it has spent the byte budget.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash, schedule_labels zset, meta hash
-- ARGV: slot, sequence, now (ms or ''), then names
-- Returns: a status per name: 1 removed, 0 no such schedule; fewer than names if they are large
-- Re-run: returns the same reply.
-- Uses: bytes, clock, once, labels
local schedules, schedule_specs, schedule_states, schedule_labels, meta = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
redis.call('HLEN', schedule_states)
redis.call('ZCARD', schedule_labels)
local statuses = {}
for i = 4, #ARGV do
  if bytes_left <= 0 then break end
  local spec = read_payload(schedule_specs, ARGV[i])
  redis.call('ZREM', schedules, ARGV[i])
  local known = redis.call('HDEL', schedule_specs, ARGV[i]) + redis.call('HDEL', schedule_states, ARGV[i])
  index_labels(schedule_labels, ARGV[i], spec, false)
  statuses[#statuses + 1] = known > 0 and '1' or '0'
end
return remember(meta, slot, sequence, now, table.concat(statuses))
