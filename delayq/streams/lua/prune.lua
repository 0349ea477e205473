-- Deletes old entries of the dead letter, unused call slots and idle consumers. If the stream is empty, it also deletes
-- the ids, errors and delays that are left of messages that other clients deleted.
-- KEYS: stream stream, ids set, dead stream, errors hash, delays hash, meta hash, replies hash
-- ARGV: slot, sequence, group, limit (entries), dead_ttl (ms), slot_ttl (ms; for consumers, too)
-- Returns: "0 trimmed 0": entries deleted from the dead letter
-- Re-run: returns the same reply.
-- Uses: entries, clock, numbers, once, pel
local stream, ids, dead, errors, delays, meta, replies = unpack(KEYS)
local slot, sequence, group, limit, dead_ttl, slot_ttl = unpack(ARGV, 1, 6)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock('') / 1000)
local cursor = redis.call('HGET', meta, 'slot_cursor')
cursor = whole(cursor) and cursor or '0' -- another program may have written anything
redis.call('SCARD', ids)
for _, hash in ipairs({errors, delays}) do redis.call('HLEN', hash) end
local last, trimmed = string.format('%.0f', math.max(now - dead_ttl, 0)), 0
redis.call('XLEN', dead)
begin(replies, slot)
if redis.call('XLEN', stream) == 0 then redis.call('UNLINK', ids, errors, delays) end
each_entry(tonumber(limit), function(count) return redis.call('XRANGE', dead, '-', last, 'COUNT', count) end,
  function(entry)
    redis.call('XDEL', dead, entry)
    trimmed = trimmed + 1
  end)
local info = find_group(stream, group)
for _, one in ipairs(info and redis.call('XINFO', 'CONSUMERS', stream, group) or {}) do
  local name = field(one, 'name')
  if field(one, 'pending') == 0 and field(one, 'idle') > tonumber(slot_ttl) and name ~= nobody then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, name)
  end
end
local next_cursor = forget_slots(replies, cursor, now, slot_ttl)
redis.call('HSET', meta, 'slot_cursor', next_cursor, 'pruned', string.format('%.0f', now))
return remember(replies, slot, sequence, now, string.format('0 %d 0', trimmed))
