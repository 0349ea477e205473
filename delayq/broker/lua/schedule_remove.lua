-- Removes schedules; keeps the messages that they have fired.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash, replies hash
-- ARGV: slot, sequence, now (ms or ''), then names
-- Returns: a status per name: 1 removed, 0 no such schedule
-- Re-run: returns the same reply.
-- Uses: clock, once
local schedules, schedule_specs, schedule_states, replies = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
redis.call('HLEN', schedule_specs)
redis.call('HLEN', schedule_states)
local statuses = {}
for i = 4, #ARGV do
  redis.call('ZREM', schedules, ARGV[i])
  local known = redis.call('HDEL', schedule_specs, ARGV[i]) + redis.call('HDEL', schedule_states, ARGV[i])
  statuses[#statuses + 1] = known > 0 and '1' or '0'
end
return remember(replies, slot, sequence, now, table.concat(statuses))
