-- Stores the presence of a consumer, and until when this counts; or removes it, when the consumer stops. Adds what it
-- has counted to the record of this hour and to the total. Removes some of those that have been silent for long, so that
-- what crashed consumers leave does not pile up, and some of the hours that are too old.
-- KEYS: workers hash, beats zset, history hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), consumer, lasts (ms for which it counts; 0 to remove it), kept (ms for which an
--   entry is kept after its end), entry (what it tells; see `broker.stored_presence`), hours
--   (for which records are kept), counts (numbers to add, separated by spaces; '' for none; see `broker.stored_presence`)
-- Returns: "removed before together now": entries, its own among them; how many consumers, of a hundred, come before it by
--   id, and how many there are with itself; ms
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, place
local workers, beats, history, meta = unpack(KEYS)
local slot, sequence, override, consumer, lasts, kept, entry, hours, counts = unpack(ARGV)
local past = answered(meta, slot, sequence)
if past then return past end

-- Adds numbers to those of a record, which may have fewer or more of them.
local function add(record, numbers)
  local sums = {}
  for number in string.gmatch(record, '%d+') do sums[#sums + 1] = whole(number) or 0 end
  local at = 0
  for number in string.gmatch(numbers, '%d+') do
    at = at + 1
    sums[at] = (sums[at] or 0) + tonumber(number)
  end
  for i, sum in ipairs(sums) do sums[i] = string.format('%.0f', sum) end
  return table.concat(sums, ' ')
end

local now = math.floor(clock(override) / 1000)
local hour = math.floor(now / 3600000)
local before, together = place_among(beats, consumer, now)
local stored = redis.call('HMGET', history, 'first', hour, 'total')
local first, old = math.min(whole(stored[1]) or hour, hour), {}
for at = first, math.min(first + 100, hour - hours) - 1 do old[#old + 1] = at end
local over = redis.call('ZRANGEBYSCORE', beats, '-inf', now - kept, 'LIMIT', 0, 100)
if lasts == '0' then over[#over + 1] = consumer end
-- Entries without an end, which this never leaves: a sample of a hundred has them sooner or later.
if redis.call('HLEN', workers) > redis.call('ZCARD', beats) then
  for _, id in ipairs(redis.call('HRANDFIELD', workers, 100)) do
    if not redis.call('ZSCORE', beats, id) then over[#over + 1] = id end
  end
end
begin(meta, slot) -- removes first, so that it runs through when Redis is full: an entry takes the place of the last
local removed = 0
if #over > 0 then
  redis.call('ZREM', beats, unpack(over))
  removed = redis.call('HDEL', workers, unpack(over))
end
if lasts ~= '0' then
  redis.call('ZADD', beats, now + lasts, consumer)
  redis.call('HSET', workers, consumer, entry)
end
if #old > 0 then redis.call('HDEL', history, unpack(old)) end
if #old > 0 or counts ~= '' then redis.call('HSET', history, 'first', first + #old) end
if counts ~= '' then
  redis.call('HSET', history, hour, add(stored[2] or '', counts), 'total', add(stored[3] or '', counts))
end
return remember(meta, slot, sequence, now, string.format('%d %d %d %.0f', removed, before, together, now))
