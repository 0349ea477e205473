-- Notes that a process waits for the ends of messages: the script that ends one adds its id to the stream.
-- KEYS: waited zset, meta hash
-- ARGV: slot, sequence, now (ms or ''), duration (ms, after which it is forgotten), then ids
-- Returns: "noted time": ids; the server's own time (ms), by which the entries of the stream are numbered
-- Re-run: returns the same reply.
-- Uses: clock, once
local waited, meta = unpack(KEYS)
local slot, sequence, override, duration = unpack(ARGV, 1, 4)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local until_then, untils = string.format('%.0f', now + duration), {}
for i = 5, #ARGV do untils[#untils + 1], untils[#untils + 2] = until_then, ARGV[i] end
redis.call('ZCARD', waited)
begin(meta, slot)
redis.call('ZADD', waited, 'GT', unpack(untils))
return remember(meta, slot, sequence, now, string.format('%d %.0f', #ARGV - 4, math.floor(clock('') / 1000)))
