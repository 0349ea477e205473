-- Wakes one idle consumer. The list holds one element at most, however many have a reason to signal.
local function signal(wake)
  if redis.call('LLEN', wake) == 0 then redis.call('RPUSH', wake, '1') end
end

-- Wakes a consumer if one of these ids has become the first of a zset by time.
local function signal_if_first(wake, zset, ids)
  local first = redis.call('ZRANGE', zset, 0, 0)[1]
  for _, id in ipairs(ids) do
    if id == first then return signal(wake) end
  end
end
