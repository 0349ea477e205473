-- Reads what consumers have counted in some hours.
-- KEYS: history hash
-- ARGV: now (ms or ''), last (hours since 1970; '' for the current hour), limit (hours, at most a thousand)
-- Returns: now (ms), and the records of as many hours up to the last, the latest first (nil for none)
-- Re-run: reads only.
-- Uses: clock
local history = KEYS[1]
local override, last, limit = unpack(ARGV)
local now = math.floor(clock(override) / 1000)
if last == '' then last = math.floor(now / 3600000) end
local hours = {}
for back = 0, limit - 1 do hours[#hours + 1] = string.format('%.0f', last - back) end
return {now, redis.call('HMGET', history, unpack(hours))}
