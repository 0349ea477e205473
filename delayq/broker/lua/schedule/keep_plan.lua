-- Stores the plan of a calendar's reminders, unless it was replaced since the caller read it.
-- KEYS: plans hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), calendar, revision (of the plan that was read, 0 for none), plan ('' to
--   delete it)
-- Returns: 1 stored, 0 it was replaced meanwhile
-- Re-run: returns the same reply.
-- Uses: bytes, clock, once
local plans, meta = unpack(KEYS)
local slot, sequence, override, calendar, revision, plan = unpack(ARGV)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local stored = read_payload(plans, calendar)
local current = stored and string.match(stored, '^%d+') or '0'
begin(meta, slot)
if current ~= revision then return remember(meta, slot, sequence, now, '0') end
if plan == '' then
  redis.call('HDEL', plans, calendar)
else
  redis.call('HSET', plans, calendar, string.format('%.0f ', revision + 1) .. plan)
end
return remember(meta, slot, sequence, now, '1')
