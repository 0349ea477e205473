-- Keeps the plan of a calendar's reminders, unless another was kept since the one that it was made from.
-- KEYS: plans hash, replies hash
-- ARGV: slot, sequence, now (ms or ''), calendar, revision (of the plan it was made from, 0 for none), plan ('' to
--   forget it)
-- Returns: 1 kept, 0 another was kept meanwhile
-- Re-run: answers what it answered.
-- Uses: clock, once
local plans, replies = unpack(KEYS)
local slot, sequence, override, calendar, revision, plan = unpack(ARGV)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local held = redis.call('HGET', plans, calendar)
local current = held and string.match(held, '^%d+') or '0'
begin(replies, slot)
if current ~= revision then return remember(replies, slot, sequence, now, '0') end
if plan == '' then
  redis.call('HDEL', plans, calendar)
else
  redis.call('HSET', plans, calendar, string.format('%.0f ', revision + 1) .. plan)
end
return remember(replies, slot, sequence, now, '1')
