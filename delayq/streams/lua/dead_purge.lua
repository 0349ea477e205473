-- Deletes entries of the dead letter.
-- KEYS: ids set, dead stream, replies hash
-- ARGV: slot, sequence, then entries of the dead letter
-- Returns: the number of deleted entries, as text
-- Re-run: returns the same reply.
-- Uses: clock, once
local ids, dead, replies = unpack(KEYS)
local slot, sequence = unpack(ARGV, 1, 2)
local past = answered(replies, slot, sequence)
if past then return past end

local now, entries = math.floor(clock('') / 1000), {}
redis.call('SISMEMBER', ids, '') -- checks the right to send: who may redrive may purge
redis.call('XLEN', dead)
for i = 3, #ARGV do entries[#entries + 1] = ARGV[i] end
begin(replies, slot)
local purged = redis.call('XDEL', dead, unpack(entries))
return remember(replies, slot, sequence, now, string.format('%d', purged))
