-- Stores the limit that a program declares for the queue or a name. Of its rate and its places it stores what differs from
-- the last that was declared, so that what `limit` has changed since then stays when a process starts.
-- KEYS: limits hash, declared hash, gates zset, throttled zset, running zset, unack zset, deliveries hash, attributes hash,
--   meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), scope (queue, or name:NAME), interval (us between two starts, 0.000 for no rate),
--   burst (starts at once, 1 for no rate; 0 so that none starts, with an interval longer than all time), places (how many
--   may run, 0 for any number), next_start (us, if all keep their distance; left out to leave it)
-- Returns: "declared": 1 if it differs from the last, else 0, -2 if the queue has too many limits
-- Re-run: returns the same reply.
-- Uses: clock, once, schema, record, limit, key, limited, signal, scope, seat
local limits, declared, gates, throttled, running, unack, deliveries, attributes, meta, wake = unpack(KEYS)
local slot, sequence, override, scope, interval, burst, places, next_start = unpack(ARGV, 1, 8)
local past = answered(meta, slot, sequence)
if past then return past end

local time, last = clock(override), redis.call('HGET', declared, scope)
local now, last_rate, last_places = math.floor(time / 1000), string.match(last or '0.000 1 0', '^(%S+ %S+) (%S+)$')
local has_rate, has_places = last_rate == interval .. ' ' .. burst, last_places == places
for _, zset in ipairs({gates, throttled, running, unack}) do redis.call('ZCARD', zset) end
redis.call('LLEN', wake)
redis.call('HLEN', deliveries)
redis.call('HLEN', attributes)
redis.call('HGET', meta, 'limited')
local one = (last or redis.call('HLEN', declared) < max_limits) and limit_or_new(limits, scope)
begin(meta, slot)
if has_rate and has_places then return remember(meta, slot, sequence, now, '0') end
if not one then return remember(meta, slot, sequence, now, '-2') end
change_limit(running, unack, deliveries, attributes, one, scope, has_rate and '' or interval, burst,
  has_places and '' or places)
one.next_start = tonumber(next_start) or one.next_start
put_limit(limits, gates, throttled, meta, wake, scope, one, time)
redis.call('HSET', declared, scope, interval .. ' ' .. burst .. ' ' .. places)
return remember(meta, slot, sequence, now, '1')
