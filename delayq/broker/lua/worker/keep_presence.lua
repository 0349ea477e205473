-- Stores the presence of a consumer that has counted nothing, and until when this counts: what most calls of `presence`
-- would do, at half the cost.
-- KEYS: workers hash, beats zset
-- ARGV: now (ms or ''), consumer, lasts (ms for which it counts), entry (what it tells)
-- Returns: "removed before together now", as of `presence`; it removes none
-- Re-run: stores the same again.
-- Uses: clock, place
local workers, beats = unpack(KEYS)
local override, consumer, lasts, entry = unpack(ARGV)
local now = math.floor(clock(override) / 1000)
local before, together = place_among(beats, consumer, now)
local ends = string.format('%.0f', now + lasts)
if type(redis.pcall('ZADD', beats, ends, consumer)) == 'table' then -- a full Redis refuses a first write that adds
  redis.call('HDEL', workers, consumer)
  redis.call('ZADD', beats, ends, consumer)
end
redis.call('HSET', workers, consumer, entry)
return string.format('0 %d %d %.0f', before, together, now)
