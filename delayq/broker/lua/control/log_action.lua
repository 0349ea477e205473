-- Records in the event log that somebody has acted on the queue, if the log is on.
-- KEYS: events stream, meta hash
-- ARGV: slot, sequence, now (ms or ''), actor, text (what was done, and what came of it), id (of the message, or '')
-- Returns: "done": 1
-- Re-run: returns the same reply.
-- Uses: clock, once, log
local events, meta = unpack(KEYS)
local slot, sequence, override, actor, text, id = unpack(ARGV, 1, 6)
-- The access rights of producers and consumers do not include this command: only an admin acts on a queue.
redis.call('HVALS', meta)
local past = answered(meta, slot, sequence)
if past then return past end

local now, setting = math.floor(clock(override) / 1000), logging(meta)
begin(meta, slot)
local reply = remember(meta, slot, sequence, now, '1')
if id == '' then
  log(events, meta, setting, 'audit', now, 'holder', actor, 'reasons', text)
else
  log(events, meta, setting, 'audit', now, 'holder', actor, 'reasons', text, 'ids', {id})
end
return reply
