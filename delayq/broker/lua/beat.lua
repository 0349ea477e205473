-- Stores what a consumer tells of itself, and until when this counts; or removes it, when the consumer stops. Removes some
-- of those that have been silent for long, so that what crashed consumers leave does not pile up.
-- KEYS: workers hash, beats zset, replies hash
-- ARGV: slot, sequence, now (ms or ''), consumer, lasts (ms for which it counts; 0 to remove it), kept (ms for which an
--   entry is kept after its end), entry (what it tells; see `broker.worker_entries`)
-- Returns: "removed": entries, its own among them
-- Re-run: returns the same reply.
-- Uses: clock, once
local workers, beats, replies = unpack(KEYS)
local slot, sequence, override, consumer, lasts, kept, entry = unpack(ARGV)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local over = redis.call('ZRANGEBYSCORE', beats, '-inf', now - kept, 'LIMIT', 0, 100)
if lasts == '0' then over[#over + 1] = consumer end
-- Entries without an end, which this never leaves: a sample of a hundred has them sooner or later.
if redis.call('HLEN', workers) > redis.call('ZCARD', beats) then
  for _, id in ipairs(redis.call('HRANDFIELD', workers, 100)) do
    if not redis.call('ZSCORE', beats, id) then over[#over + 1] = id end
  end
end
begin(replies, slot) -- removes first, so that it runs through when Redis is full: an entry takes the place of the last
local removed = 0
if #over > 0 then
  redis.call('ZREM', beats, unpack(over))
  removed = redis.call('HDEL', workers, unpack(over))
end
if lasts ~= '0' then
  redis.call('ZADD', beats, now + lasts, consumer)
  redis.call('HSET', workers, consumer, entry)
end
return remember(replies, slot, sequence, now, string.format('%d', removed))
