-- Moves messages to the dead letter at once, however many retries are left.
-- KEYS: stream stream, ids set, dead stream, errors hash, delays hash, replies hash
-- ARGV: slot, sequence, group, consumer, dead_max (entries), then per rejection: entry, delivery, reason, error
-- Returns: a status for each of the first rejections (at most 250): 1 dead, 0 not leased under this delivery
-- Re-run: returns the same reply.
-- Uses: entries, clock, once, pel, charges, bury
local stream, ids, dead, errors, delays, replies = unpack(KEYS)
local slot, sequence, group, consumer, dead_max = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock('') / 1000)
for _, key in ipairs({stream, dead}) do redis.call('XLEN', key) end
for _, hash in ipairs({errors, delays}) do redis.call('HLEN', hash) end
redis.call('SCARD', ids)
local statuses = {}
local info = find_group(stream, group)
begin(replies, slot)
for i = 6, math.min(#ARGV, 5 + 4 * 250), 4 do
  if bytes_left <= 0 then break end
  local entry, delivery, reason, error = unpack(ARGV, i, i + 3)
  local body = info and holds(stream, group, consumer, entry, delivery) and read(stream, entry)
  statuses[#statuses + 1] = body and '1' or '0'
  if body then bury(stream, group, ids, dead, errors, delays, dead_max, entry, body, delivery, reason, error) end
end
return remember(replies, slot, sequence, now, table.concat(statuses))
