-- Requeues messages whose callbacks have not started: the delivery is not counted, and they can be claimed at once.
-- KEYS: stream stream, replies hash
-- ARGV: slot, sequence, group, consumer, lease (ms), then per receipt: entry, delivery
-- Returns: a status per receipt: 1 requeued, 0 not leased under this delivery
-- Re-run: returns the same reply.
-- Uses: clock, once, pel, give
local stream, replies = unpack(KEYS)
local slot, sequence, group, consumer, lease = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local now, statuses = math.floor(clock('') / 1000), {}
redis.call('XLEN', stream)
local info = find_group(stream, group)
begin(replies, slot)
for i = 6, #ARGV, 2 do
  local is_ours = info and holds(stream, group, consumer, ARGV[i], ARGV[i + 1])
  statuses[#statuses + 1] = is_ours and '1' or '0'
  if is_ours then give(stream, group, nobody, ARGV[i], lease, ARGV[i + 1] - 1) end
end
return remember(replies, slot, sequence, now, table.concat(statuses))
