-- Changes of the rate and the places of a limit.

-- What runs already with a name takes its place, unless thousands do.
local function seat(running, unack, deliveries, attributes, one, name)
  local leased = redis.call('ZCARD', unack) <= 5000 and redis.call('ZRANGE', unack, 0, -1) or {}
  for first = 1, #leased, 1000 do
    local last = math.min(first + 999, #leased)
    local records = redis.call('HMGET', deliveries, unpack(leased, first, last))
    for n, text in ipairs(redis.call('HMGET', attributes, unpack(leased, first, last))) do
      if text and string.match(' ' .. text, ' name=(%S+)') == name and read(records[n] or '') == 'leased' then
        redis.call('ZADD', running, one.number, leased[first + n - 1])
      end
    end
  end
end

-- Changes a limit of a name, or of the queue if that is nil; what is '' stays.
local function change_limit(running, unack, deliveries, attributes, one, name, interval, burst, places)
  if places ~= '' and name then
    if tonumber(places) == 0 then
      redis.call('ZREMRANGEBYSCORE', running, one.number, one.number)
    elseif one.places == 0 then
      seat(running, unack, deliveries, attributes, one, name)
    end
  end
  if interval ~= '' then one.interval, one.burst = tonumber(interval), tonumber(burst) end
  if places ~= '' then one.places = tonumber(places) end
  keep_starts(one)
end
