-- Deletes entries of the dead letter.
-- KEYS: dead zset, dead_messages hash, dead_ids hash, meta hash, replies hash
-- ARGV: slot, sequence, now (ms or ''), then entries (id:token)
-- Returns: a status per entry: 1 deleted, 0 gone
-- Re-run: returns the same reply.
-- Uses: clock, once, dead
local dead, dead_messages, dead_ids, meta, replies = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
redis.call('HLEN', dead_ids)
redis.call('HLEN', meta)
redis.call('ZCARD', dead)
local statuses, entries, seen = {}, {}, {}
for i = 4, #ARGV do
  local exists = redis.call('HEXISTS', dead_messages, ARGV[i]) == 1 and not seen[ARGV[i]]
  statuses[#statuses + 1] = exists and '1' or '0'
  if exists then seen[ARGV[i]], entries[#entries + 1] = true, ARGV[i] end
end
begin(replies, slot)
if #entries > 0 then
  remove_dead_entries(dead, dead_messages, dead_ids, entries)
  redis.call('HINCRBY', meta, 'purged', #entries)
end
return remember(replies, slot, sequence, now, table.concat(statuses))
