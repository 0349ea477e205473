-- Wakes one idle consumer. The list has at most one element, however many calls signal.
local function signal(wake)
  if redis.call('LLEN', wake) == 0 then redis.call('RPUSH', wake, '1') end
end

-- Adds ids to pending by their due times, and wakes a consumer if one of them is due first.
local function enter(pending, wake, dues)
  local first = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', pending, unpack(dues))
  local earliest = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]
  if not first or tonumber(earliest) < tonumber(first) then signal(wake) end
end

-- Wakes a consumer if one of these ids is now the first of a zset by time.
local function signal_if_first(wake, zset, ids)
  local first = redis.call('ZRANGE', zset, 0, 0)[1]
  for _, id in ipairs(ids) do
    if id == first then return signal(wake) end
  end
end
