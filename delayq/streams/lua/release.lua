-- Requeues messages: the delivery costs no retry, and they can be claimed at once, or after a delay.
-- KEYS: stream stream, delays hash, replies hash
-- ARGV: slot, sequence, group, consumer, lease (ms), then per release: entry, delivery, delay (ms)
-- Returns: a status per release: 1 requeued, 0 not leased under this delivery
-- Re-run: returns the same reply.
-- Uses: clock, once, pel, charges, give
local stream, delays, replies = unpack(KEYS)
local slot, sequence, group, consumer, lease = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local now, statuses = math.ceil(clock('') / 1000), {}
redis.call('XLEN', stream)
redis.call('HLEN', delays)
local info = find_group(stream, group)
begin(replies, slot)
for i = 6, #ARGV, 3 do
  local is_ours = info and holds(stream, group, consumer, ARGV[i], ARGV[i + 1])
  statuses[#statuses + 1] = is_ours and '1' or '0'
  if is_ours then
    local _, free = note_of(delays, ARGV[i], tonumber(ARGV[i + 1]))
    give_later(stream, group, delays, ARGV[i], now, ARGV[i + 2], lease, ARGV[i + 1], free + 1)
  end
end
return remember(replies, slot, sequence, now, table.concat(statuses))
