-- Ends a pause of the queue, and wakes an idle consumer.
-- KEYS: events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or '')
-- Returns: "resumed": 1 if the queue was paused, else 0
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, pause, log
local events, meta, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
-- The access rights of producers and consumers do not include this command: only an admin may resume a queue.
redis.call('HVALS', meta)
local past = answered(meta, slot, sequence)
if past then return past end

local now, setting = math.floor(clock(override) / 1000), logging(meta)
local paused = pause_end(redis.call('HGET', meta, 'paused'), now)
local wakes = redis.call('LLEN', wake) == 0
redis.call('HDEL', meta, 'paused') -- first, because a full Redis refuses a script whose first write adds data
local reply = remember(meta, slot, sequence, now, paused and '1' or '0')
if not paused then return reply end
if wakes then redis.call('RPUSH', wake, '1') end
log(events, meta, setting, 'resumed', now)
return reply
