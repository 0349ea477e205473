-- Batches on their way: `moving` of a partition has what leaves it for another one, until that has stored it. Batches of a
-- kind for one partition have rising numbers, and are brought in this order: so the number of the last that has arrived says
-- which have.

local function order_of(moving, kind, target)
  return redis.call('HGET', moving, 'order ' .. kind .. ' ' .. target) or ''
end

-- Stores what is packed as a batch with a number: as drawn from the clock, which no number before is above, also where a
-- failover has lost the last. Returns the numbers of all batches that are on the same way, first those to arrive first.
local function send_off(moving, kind, target, time)
  local order = order_of(moving, kind, target)
  if #packed == 0 then return order end
  local number = string.format('%.0f', math.max((whole(redis.call('HGET', moving, 'last')) or 0) + 1, time))
  order = order == '' and number or order .. ' ' .. number
  redis.call('HSET', moving, 'last', number, 'order ' .. kind .. ' ' .. target, order,
    kind .. ' ' .. target .. ' ' .. number, table.concat(packed))
  return order
end

-- Returns what becomes of a batch, the first of those that have not arrived: '1' it is to be stored, '2' it has been.
local function arrival(moving, kind, source, number)
  local last = whole(redis.call('HGET', moving, 'from ' .. kind .. ' ' .. source)) or 0
  return tonumber(number) > last and '1' or '2'
end

local function note_arrival(moving, kind, source, number)
  redis.call('HSET', moving, 'from ' .. kind .. ' ' .. source, number)
end
