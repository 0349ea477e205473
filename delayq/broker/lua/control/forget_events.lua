-- Deletes entries of the event log, whole: an entry of a stream cannot be changed.
-- KEYS: events stream, meta hash
-- ARGV: slot, sequence, now (ms or ''), then ids of entries
-- Returns: a status per entry: 1 deleted, 0 gone
-- Re-run: returns the same reply.
-- Uses: clock, once
local events, meta = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local statuses = {}
for i = 4, #ARGV do statuses[#statuses + 1] = redis.call('XDEL', events, ARGV[i]) end
return remember(meta, slot, sequence, now, table.concat(statuses))
