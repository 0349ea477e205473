-- Deletes the batches of a kind for another partition that have arrived there.
-- KEYS: moving hash
-- ARGV: kind (messages, deaths or schedules), target (name of the partition), number (of the last that has arrived)
-- Returns: how many batches are left on this way, then their numbers
-- Re-run: deletes what is left.
-- Uses: numbers, batch
local moving = KEYS[1]
local kind, target, number = unpack(ARGV)
local left = {}
for other in string.gmatch(order_of(moving, kind, target), '%d+') do
  if tonumber(other) <= tonumber(number) then
    redis.call('HDEL', moving, kind .. ' ' .. target .. ' ' .. other)
  else
    left[#left + 1] = other
  end
end
local order, field = table.concat(left, ' '), 'order ' .. kind .. ' ' .. target
if order == '' then redis.call('HDEL', moving, field) else redis.call('HSET', moving, field, order) end
return string.format('%d ', #left) .. order
