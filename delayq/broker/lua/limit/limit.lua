-- Changes the limit of the queue or of a name: its rate, its places, its pause; or the template of keys: their places. It
-- counts at once, in all processes, and also for what waits. One that limits nothing any more is removed.
-- KEYS: limits hash, gates zset, throttled zset, running zset, unack zset, deliveries hash, attributes hash, events stream,
--   meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), scope (queue, name:NAME or key:PREFIX*), interval (us between two starts, 0 for no
--   rate, '' to leave it), burst (starts at once), places (how many may run, 0 for any number, '' to leave it), paused (its end:
--   ms, +ms from now, 0 for no end; - to end it and a spread, '' to leave both), reason (of the pause; of a template
--   `in_order` or ''), spread (ms over
--   which what waits is let go, '' for none), waiting (messages to let go; '' for those of the line)
-- Returns: "changed paused": 1 if there was such a limit, or pause or spread, before, else 0, -1 if the pause would be over, -2 if the
--   queue has too many limits, -3 if another template limits some of these keys; the end of the pause in force (ms, 0 for
--   no end, -1 if there is none), or after -3 the other template
-- Re-run: returns the same reply.
-- Uses: clock, once, schema, record, limit, key, limited, signal, scope, seat, log
local limits, gates, throttled, running, unack, deliveries, attributes, events, meta, wake = unpack(KEYS)
local slot, sequence, override, scope, interval, burst, places, paused, reason, spread, waiting = unpack(ARGV, 1, 11)
-- The access rights of producers and consumers do not include this command: only an admin may set limits.
redis.call('HVALS', meta)
local past = answered(meta, slot, sequence)
if past then return past end

local time = clock(override)
local now, logged = math.floor(time / 1000), redis.call('HGET', meta, 'events')
for _, zset in ipairs({gates, throttled, running, unack}) do redis.call('ZCARD', zset) end
redis.call('LLEN', wake)
redis.call('HLEN', deliveries)
redis.call('HLEN', attributes)
local one, name, prefix = limit_or_new(limits, scope), string.match(scope, '^name:(.*)$'), prefix_of(scope)
local other = prefix and places ~= '0' and overlapping(limits, prefix)
local ends = string.sub(paused, 1, 1) == '+' and now + paused or tonumber(paused)
if other or not one or ends and ends ~= 0 and ends <= now then
  begin(meta, slot)
  return remember(meta, slot, sequence, now, other and '-3 ' .. other or one and '-1 -1' or '-2 -1')
end
local function is_paused() return one.paused and (one.paused == 0 or one.paused > now) end

local was_paused, was_spread, limited = is_paused(), one.spread_until > now, one.interval > 0 or one.places > 0
begin(meta, slot)
if prefix then one.reason = reason end
change_limit(running, unack, deliveries, attributes, one, scope, interval, burst, places)
if ends then one.paused, one.reason = ends, reason end
if paused == '-' then one.paused, one.reason, one.spread, one.spread_until = false, '', 0, 0 end
if spread ~= '' then
  local low, high = line_of(one.number)
  local count = waiting ~= '' and tonumber(waiting) or redis.call('ZCOUNT', throttled, low, high)
  one.spread, one.spread_until, one.next_start = spread * 1000 / math.max(count, 1), now + spread, time
end
put_limit(limits, gates, throttled, meta, wake, scope, one, time)
local changed = limited
if ends then changed = was_paused elseif paused == '-' then changed = was_paused or was_spread end
local reply = remember(meta, slot, sequence, now,
  string.format('%d %.0f', changed and 1 or 0, is_paused() and one.paused or -1))
local kind, until_text = ends and 'paused' or paused == '-' and was_paused and 'resumed', ''
if ends and ends > 0 then until_text = string.format('%.0f', ends) end
log(events, meta, kind and logged, kind, now, 'name', name, 'dues', until_text, 'reasons', ends and reason or '')
return reply
