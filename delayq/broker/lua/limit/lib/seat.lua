-- Changes of the rate and the places of a limit.

-- What runs already takes its place, unless thousands do. `place_of` returns that of a message by its attributes and its
-- id, a score and a member; nil for a message of another limit.
local function seat(running, unack, deliveries, attributes, place_of)
  local leased = redis.call('ZCARD', unack) <= 5000 and redis.call('ZRANGE', unack, 0, -1) or {}
  for first = 1, #leased, 1000 do
    local limited, found, places = {}, {}, {}
    for n, text in ipairs(redis.call('HMGET', attributes, unpack(leased, first, math.min(first + 999, #leased)))) do
      local id = leased[first + n - 1]
      local score, member = place_of(text, id)
      if score then limited[#limited + 1], found[id] = id, {score, member} end
    end
    for n, record in ipairs(#limited > 0 and redis.call('HMGET', deliveries, unpack(limited)) or {}) do
      if string.match(record or '', '^%a+') == 'leased' then
        places[#places + 1], places[#places + 2] = unpack(found[limited[n]])
      end
    end
    if #places > 0 then redis.call('ZADD', running, unpack(places)) end
  end
end

-- Returns what tells the places of the limit of a scope, see `seat`; nil for that of the queue.
local function places_of(scope, one)
  local name, prefix = string.match(scope, '^name:(.*)$'), prefix_of(scope)
  return name and function(text, id)
    if text and string.match(' ' .. text, ' name=(%S+)') == name then return one.number, id end
  end or prefix and function(text, id)
    local key = key_in(text)
    if key and begins(key, prefix) then return key_place(key_number(key), id, one.reason) end
  end
end

-- Changes the limit of a scope; what is '' stays. Places of keys stay until they are given back.
local function change_limit(running, unack, deliveries, attributes, one, scope, interval, burst, places)
  local place_of = places_of(scope, one)
  if places ~= '' and place_of then
    if tonumber(places) == 0 then
      redis.call('ZREMRANGEBYSCORE', running, one.number, one.number)
    elseif one.places == 0 or prefix_of(scope) then -- a template may be in order from now on
      seat(running, unack, deliveries, attributes, place_of)
    end
  end
  if interval ~= '' then one.interval, one.burst = tonumber(interval), tonumber(burst) end
  if places ~= '' then one.places = tonumber(places) end
  keep_starts(one)
end
