-- Closes the queue or a name for a time, because a callback has found that no more is to start; never shortens it.
-- KEYS: limits hash, gates zset, throttled zset, meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), scope (queue, or name:NAME), delay (ms)
-- Returns: "held": 1 closed, 0 not, because the queue has too many limits
-- Re-run: returns the same reply.
-- Uses: clock, once, limit, signal, scope
local limits, gates, throttled, meta, replies, wake = unpack(KEYS)
local slot, sequence, override, scope, delay = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
redis.call('HGET', meta, 'limited')
redis.call('ZCARD', gates)
redis.call('ZCARD', throttled)
redis.call('LLEN', wake)
local one = limit_or_new(limits, scope)
begin(replies, slot)
if not one then return remember(replies, slot, sequence, now, '0') end
one.held = math.max(one.held, math.ceil(time / 1000) + delay)
put_limit(limits, gates, throttled, meta, wake, scope, one, time)
return remember(replies, slot, sequence, now, '1')
