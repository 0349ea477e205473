-- Wakes one idle consumer. The list has at most one element, however many calls signal.
local function signal(wake)
  if redis.call('LLEN', wake) == 0 then redis.call('RPUSH', wake, '1') end
end

-- Returns whether to wake a consumer for what enters pending with this due time: it is the first, and no wake-up waits.
local function is_to_wake(pending, wake, due)
  local first = redis.call('ZRANGE', pending, '0', '0', 'WITHSCORES')[2]
  return (not first or due < tonumber(first)) and redis.call('LLEN', wake) == 0
end

-- Adds ids to pending by their due times, and wakes a consumer if the first of these is due before all others.
local function enter(pending, wake, dues, first_due)
  local wakes = is_to_wake(pending, wake, first_due)
  redis.call('ZADD', pending, unpack(dues))
  if wakes then redis.call('RPUSH', wake, '1') end
end

-- Wakes a consumer if one of these ids is now the first of a zset by time.
local function signal_if_first(wake, zset, ids)
  local first = redis.call('ZRANGE', zset, 0, 0)[1]
  for _, id in ipairs(ids) do
    if id == first then return signal(wake) end
  end
end
