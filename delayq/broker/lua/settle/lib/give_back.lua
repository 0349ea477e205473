-- Starts that are given back: what a worker releases without having started it counts no more for the rates of its limits.

-- Gives the start of a message with this token back to a limit; returns whether it counted for that still.
local function give_back(one, token, time)
  if one.last == 0 or token < one.since then return false end
  local most = pace_of(one, time)
  if token < one.last then
    most = math.min(most, one.spare)
    one.spare = one.spare - most
  end
  one.next_start = one.next_start - most
  return most > 0
end

-- Gives back the starts of messages with these tokens (texts). Returns the limits that change, by their scopes; writes
-- nothing yet.
local function give_back_starts(limits, gates, attributes, time, ids, given)
  local known, changed = {}, {}
  redis.call('ZCARD', gates)
  for n, text in ipairs(#ids > 0 and redis.call('HMGET', attributes, unpack(ids)) or {}) do
    local name = text and string.match(' ' .. text, ' name=(%S+)')
    for _, scope in ipairs({'queue', name and 'name:' .. name or nil}) do
      if known[scope] == nil then known[scope] = read_limit(redis.call('HGET', limits, scope)) or false end
      local one = known[scope]
      if one and give_back(one, tonumber(given[n]), time) then changed[scope] = one end
    end
  end
  return changed
end

-- Stores limits that have got starts back, opens the gates of what waits for them in the next millisecond (`later`), and
-- wakes a consumer if it opens one sooner. At once, the worker that releases would claim the next before any other.
local function put_starts(limits, gates, wake, changed, later)
  for scope, one in pairs(changed) do
    local at = redis.call('ZSCORE', gates, one.number)
    redis.call('HSET', limits, scope, limit_text(one))
    if at and tonumber(at) > later then
      redis.call('ZADD', gates, later, one.number)
      signal(wake)
    end
  end
end
