-- Gives messages back whose callbacks have not started: the delivery is not counted, and they can be had at once.
-- KEYS: stream stream, replies hash
-- ARGV: slot, sequence, group, holder, lease (ms), then a receipt each: entry, delivery
-- Returns: a digit a receipt: 1 given back, 0 not held under this delivery
-- Re-run: answers what it answered.
-- Uses: clock, once, pel, give
local stream, replies = unpack(KEYS)
local slot, sequence, group, holder, lease = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local now, answers = math.floor(clock('') / 1000), {}
redis.call('XLEN', stream)
local known = find_group(stream, group)
begin(replies, slot)
for i = 6, #ARGV, 2 do
  local held = known and holds(stream, group, holder, ARGV[i], ARGV[i + 1])
  answers[#answers + 1] = held and '1' or '0'
  if held then give(stream, group, nobody, ARGV[i], lease, ARGV[i + 1] - 1) end
end
return remember(replies, slot, sequence, now, table.concat(answers))
