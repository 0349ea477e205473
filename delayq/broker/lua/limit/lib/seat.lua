-- Changes of the rate and the places of a limit.

-- What runs already with a name takes its place, unless thousands do.
local function seat(running, unack, deliveries, attributes, one, name)
  local leased = redis.call('ZCARD', unack) <= 5000 and redis.call('ZRANGE', unack, 0, -1) or {}
  for first = 1, #leased, 1000 do
    local named, places = {}, {}
    for n, text in ipairs(redis.call('HMGET', attributes, unpack(leased, first, math.min(first + 999, #leased)))) do
      local is = text and (string.match(text, '^name=(%S+)') or string.match(text, ' name=(%S+)'))
      if is == name then named[#named + 1] = leased[first + n - 1] end
    end
    for n, record in ipairs(#named > 0 and redis.call('HMGET', deliveries, unpack(named)) or {}) do
      if string.match(record or '', '^%a+') == 'leased' then
        places[#places + 1], places[#places + 2] = one.number, named[n]
      end
    end
    if #places > 0 then redis.call('ZADD', running, unpack(places)) end
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
