-- Changes of limits. A name has a number of its own among the limits, so that lines and places of thousands of names fit
-- into one sorted set each.
local max_limits, unlimited = 8000, '%d 0 1 0 0 - 0 0 0 '

-- Returns the limit of a scope, one that limits nothing if it has none; nil if the queue has too many.
local function limit_or_new(limits, scope)
  local one = read_limit(redis.call('HGET', limits, scope))
  if one or scope == 'queue' then return one or read_limit(string.format(unlimited, 0)) end
  local taken, number = {}, 1
  local stored = redis.call('HGETALL', limits)
  for n = 2, #stored, 2 do taken[string.match(stored[n], '^%d+') or ''] = true end
  while taken[string.format('%d', number)] do number = number + 1 end
  return number <= max_limits and read_limit(string.format(unlimited, number)) or nil
end

-- Stores a limit that has changed, and opens its gate, so that what waits is judged anew.
local function put_limit(limits, gates, throttled, meta, wake, scope, one, time)
  local low, high = line_of(one.number)
  local waits = one.number > 0 and redis.call('ZCOUNT', throttled, low, high) > 0
  bring_near(one, time)
  redis.call('ZREM', gates, one.number) -- first, because a full Redis refuses a script whose first write adds data
  if waits then redis.call('ZADD', gates, 0, one.number) end
  if is_over(one, time) and not waits then
    redis.call('HDEL', limits, scope)
  else
    redis.call('HSET', limits, scope, limit_text(one))
  end
  local limited, stored = false, redis.call('HGETALL', limits)
  for n = 2, #stored, 2 do
    if tonumber(string.match(stored[n], '^%d+ %S+ %d+ (%d+)') or 0) > 0 then limited = 'running' end
    limited = limited or 'starts'
  end
  if limited then
    redis.call('HSET', meta, 'limited', limited)
    note_schema(meta)
  else
    redis.call('HDEL', meta, 'limited')
  end
  signal(wake)
end
