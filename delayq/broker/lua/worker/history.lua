-- Reads what consumers have counted in some hours, and ever.
-- KEYS: history hash
-- ARGV: now (ms or ''), last (hours since 1970; '' for the current hour), limit (hours, at most a thousand)
-- Returns: now (ms), and records (nil for none): of all hours since counting began, with those that are not kept any more,
--   then of as many hours up to the last, the latest first
-- Re-run: reads only.
-- Uses: clock
local history = KEYS[1]
local override, last, limit = unpack(ARGV)
local now = math.floor(clock(override) / 1000)
if last == '' then last = math.floor(now / 3600000) end
local hours = {'total'}
for back = 0, limit - 1 do hours[#hours + 1] = string.format('%.0f', last - back) end
return {now, redis.call('HMGET', history, unpack(hours))}
