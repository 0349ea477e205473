-- Renews the leases of messages still held: they have been idle for no time. Their deliveries do not rise.
-- KEYS: stream stream, replies hash
-- ARGV: slot, sequence, group, holder, idle (ms of the lease that are over at once), then a receipt each: entry, delivery
-- Returns: a digit a receipt: 1 renewed, 0 not held under this delivery
-- Re-run: answers what it answered.
-- Uses: clock, once, pel
local stream, replies = unpack(KEYS)
local slot, sequence, group, holder, idle = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local now, answers = math.floor(clock('') / 1000), {}
redis.call('XLEN', stream)
local known = find_group(stream, group)
begin(replies, slot)
local renewed = {}
for i = 6, #ARGV, 2 do
  local held = known and holds(stream, group, holder, ARGV[i], ARGV[i + 1])
  answers[#answers + 1] = held and '1' or '0'
  if held then renewed[#renewed + 1] = ARGV[i] end
end
if #renewed > 0 then
  for _, word in ipairs({'IDLE', idle, 'JUSTID'}) do renewed[#renewed + 1] = word end
  redis.call('XCLAIM', stream, group, holder, 0, unpack(renewed))
end
return remember(replies, slot, sequence, now, table.concat(answers))
