-- Pauses the queue: no claim gives messages until the pause ends. During a pause, changes its end and reason.
-- KEYS: events stream, meta hash
-- ARGV: slot, sequence, now (ms or ''), ends (ms, +ms from now, or 0 for no end), reason ('' for none)
-- Returns: "ends": ms, 0 for no end, -1 if it has passed, which changes nothing
-- Re-run: returns the same reply.
-- Uses: clock, once, log
local events, meta = unpack(KEYS)
local slot, sequence, override, ends, reason = unpack(ARGV, 1, 5)
-- The access rights of producers and consumers do not include this command: only an admin may pause a queue.
redis.call('HVALS', meta)
local past = answered(meta, slot, sequence)
if past then return past end

local now, setting = math.floor(clock(override) / 1000), logging(meta)
if string.sub(ends, 1, 1) == '+' then ends = now + ends end
ends = tonumber(ends)
begin(meta, slot)
if ends ~= 0 and ends <= now then return remember(meta, slot, sequence, now, '-1') end
local text = string.format('%.0f', ends)
redis.call('HSET', meta, 'paused', text .. ' ' .. reason)
local reply = remember(meta, slot, sequence, now, text)
log(events, meta, setting, 'paused', now, 'dues', ends > 0 and text or '', 'reasons', reason)
return reply
