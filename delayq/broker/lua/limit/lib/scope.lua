-- Changes of limits. A name has a number of its own among the limits, so that lines and places of thousands of names fit
-- into one sorted set each. Templates have the numbers above those of names.
local max_limits, unlimited = 8000, '%d 0 1 0 0 - 0 0 0 '

-- Returns another template that limits some key that begins with a prefix.
local function overlapping(limits, prefix)
  local stored = redis.call('HGETALL', limits)
  for n = 1, #stored, 2 do
    local other, one = prefix_of(stored[n]), read_limit(stored[n + 1])
    if other and other ~= prefix and one and one.places > 0 and (begins(prefix, other) or begins(other, prefix)) then
      return other .. '*'
    end
  end
end

-- Returns the limit of a scope, one that limits nothing if it has none; nil if the queue has too many.
local function limit_or_new(limits, scope)
  local one = read_limit(redis.call('HGET', limits, scope))
  if one or scope == 'queue' then return one or read_limit(string.format(unlimited, 0)) end
  local taken, number = {}, prefix_of(scope) and first_template or 1
  local last = prefix_of(scope) and max_template or max_limits
  local stored = redis.call('HGETALL', limits)
  for n = 2, #stored, 2 do taken[string.match(stored[n], '^%d+') or ''] = true end
  while taken[string.format('%d', number)] do number = number + 1 end
  return number <= last and read_limit(string.format(unlimited, number)) or nil
end

-- Stores a limit that has changed, and opens its gate, so that what waits is judged anew.
local function put_limit(limits, gates, throttled, meta, wake, scope, one, time)
  local low, high = line_of(one.number)
  local waits = one.number > 0 and redis.call('ZCOUNT', throttled, low, high) > 0
  bring_near(one, time)
  local opens = waits and (one.number < first_template or is_over(one, time)) -- the lines of keys have gates of their own
  redis.call('ZREM', gates, one.number) -- first, because a full Redis refuses a script whose first write adds data
  if opens then redis.call('ZADD', gates, 0, one.number) end
  if is_over(one, time) and not waits then
    redis.call('HDEL', limits, scope)
  else
    redis.call('HSET', limits, scope, limit_text(one))
  end
  if note_limited(limits, meta) then note_schema(meta, prefix_of(scope)) end
  signal(wake)
end
