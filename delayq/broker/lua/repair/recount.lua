-- Compares the counters of meta with what they count, and corrects wrong ones; removes surplus wake-ups, and opens the
-- gates of lines that have none, of the first 8,000 names and keys. A list or unack longer than the limit is not counted: its counter is only kept within bounds.
-- KEYS: ready list, unack zset, throttled zset, gates zset, key_lines zset, limits hash, retry list, deliveries hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), fix (1, or 0 to inspect only), limit (ids to count in each)
-- Returns: "ready retry backoffs wake lines": how much too high the counters of stale entries and of backoffs are, the
--   number of surplus wake-ups, and of lines without a gate
-- Re-run: returns the same reply; a call that only inspects is not remembered and runs again.
-- Uses: clock, once, record, limit, key, limited
local ready, unack, throttled, gates, key_lines, limits, retry, deliveries, meta, wake = unpack(KEYS)
local slot, sequence, override, fix, limit = unpack(ARGV, 1, 5)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local counters = redis.call('HMGET', meta, 'stale_ready', 'stale_retry', 'backoffs', 'limited')

-- Returns how many of these ids have a record with this state.
local function recorded(state, ids)
  local seen, found = {}, 0
  for n, record in ipairs(#ids > 0 and redis.call('HMGET', deliveries, unpack(ids)) or {}) do
    if not seen[ids[n]] and read(record or '') == state then seen[ids[n]], found = true, found + 1 end
  end
  return found
end

local function within(max_value, counter)
  return math.max(0, math.min(max_value, tonumber(counter or 0) or 0))
end

local function stale(list, state, counter)
  local length = redis.call('LLEN', list)
  if length > tonumber(limit) then return within(length, counter) end
  return length - recorded(state, redis.call('LRANGE', list, 0, -1))
end

local in_unack = redis.call('ZCARD', unack)
local backoffs = in_unack > tonumber(limit) and within(in_unack, counters[3])
  or recorded('backoff', redis.call('ZRANGE', unack, 0, -1))
local expected = {stale(ready, 'ready', counters[1]), stale(retry, 'retry', counters[2]), backoffs}
local excess = {math.max(redis.call('LLEN', wake) - 1, 0)}
for n = 3, 1, -1 do table.insert(excess, 1, (tonumber(counters[n] or 0) or -1) - expected[n]) end
local lines, at = {}, 0
while at do
  local first = redis.call('ZRANGEBYSCORE', throttled, string.format('%.0f', at), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local number = first and math.floor(first / span)
  if number and number < first_template and not redis.call('ZSCORE', gates, number) then lines[#lines + 1], lines[#lines + 2] = 0, number end
  at = number and number <= 8000 and (number + 1) * span -- beyond that are no limits
end
local from = '-'
for _ = 1, 8000 do
  local number = string.match(redis.call('ZRANGEBYLEX', key_lines, from, '+', 'LIMIT', 0, 1)[1] or '', '^(%d+) ')
  if not number then break end
  local gate = string.format('%.0f', number)
  if not redis.call('ZSCORE', gates, gate) then lines[#lines + 1], lines[#lines + 2] = 0, gate end
  from = '(' .. number .. '!'
end
local unnoticed = redis.call('ZCARD', throttled) > 0 and not counters[4]
excess[5] = #lines / 2 + (unnoticed and 1 or 0)
local reply = string.format('%d %d %d %d %d', unpack(excess))
if fix == '0' then return reply end

begin(meta, slot)
if #lines > 0 then redis.call('ZADD', gates, unpack(lines)) end
if unnoticed then
  redis.call('HSET', meta, 'limited', redis.call('ZCARD', key_lines) > 0 and 'running ' or 'running')
  if redis.call('ZCARD', key_lines) > 0 then note_limited(limits, meta) end
end
if excess[4] > 0 then redis.call('LTRIM', wake, excess[4], -1) end
for n, name in ipairs({'stale_ready', 'stale_retry', 'backoffs'}) do
  if excess[n] ~= 0 then redis.call('HSET', meta, name, expected[n]) end
end
return remember(meta, slot, sequence, now, reply)
