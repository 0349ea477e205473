-- Renews leases by resetting the idle time. The number of deliveries does not change.
-- KEYS: stream stream, replies hash
-- ARGV: slot, sequence, group, consumer, idle (ms: the initial idle time, which shortens the lease), then per receipt:
--   entry, delivery
-- Returns: a status per receipt: 1 renewed, 0 not leased under this delivery
-- Re-run: returns the same reply.
-- Uses: clock, once, pel
local stream, replies = unpack(KEYS)
local slot, sequence, group, consumer, idle = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local now, statuses = math.floor(clock('') / 1000), {}
redis.call('XLEN', stream)
local info = find_group(stream, group)
begin(replies, slot)
local renewed = {}
for i = 6, #ARGV, 2 do
  local is_ours = info and holds(stream, group, consumer, ARGV[i], ARGV[i + 1])
  statuses[#statuses + 1] = is_ours and '1' or '0'
  if is_ours then renewed[#renewed + 1] = ARGV[i] end
end
if #renewed > 0 then
  for _, option in ipairs({'IDLE', idle, 'JUSTID'}) do renewed[#renewed + 1] = option end
  redis.call('XCLAIM', stream, group, consumer, 0, unpack(renewed))
end
return remember(replies, slot, sequence, now, table.concat(statuses))
