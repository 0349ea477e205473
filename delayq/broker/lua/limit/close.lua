-- Closes the queue or a name for a time, because a callback has found that no more is to start; never shortens it. Or trips
-- its breaker: after a pause one message starts as a trial, after another pause one more, and after another one all. Or
-- lets all start again whose breaker has tripped. A breaker that waits for its first trial does not trip again.
-- KEYS: limits hash, gates zset, throttled zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), scope (queue, or name:NAME), delay (ms), pause (ms to trip the breaker, 0 to let all
--   start again, '' for neither)
-- Returns: "held": 1 done, 2 nothing to do, 0 not done, because the queue has too many limits
-- Re-run: returns the same reply.
-- Uses: clock, once, schema, limit, key, limited, signal, scope
local limits, gates, throttled, meta, wake = unpack(KEYS)
local slot, sequence, override, scope, delay, pause = unpack(ARGV, 1, 6)
local past = answered(meta, slot, sequence)
if past then return past end

local trials, time = 2, clock(override)
local now = math.floor(time / 1000)
redis.call('HGET', meta, 'limited')
redis.call('ZCARD', gates)
redis.call('ZCARD', throttled)
redis.call('LLEN', wake)
local one = limit_or_new(limits, scope)
begin(meta, slot)
if not one then return remember(meta, slot, sequence, now, '0') end
bring_near(one, time)
local is_first = one.trials == trials and one.trial_at * 1000 > time
if pause == '0' and one.trial_pause == 0 or pause ~= '' and pause ~= '0' and is_first then
  return remember(meta, slot, sequence, now, '2')
end
if pause ~= '' then
  trip(one, time, tonumber(pause), trials)
else
  one.held = math.max(one.held, math.ceil(time / 1000) + delay)
end
put_limit(limits, gates, throttled, meta, wake, scope, one, time)
return remember(meta, slot, sequence, now, '1')
