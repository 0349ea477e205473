-- Deletes entries of the dead letter.
-- KEYS: dead zset, dead_messages hash, dead_ids hash, events stream, meta hash
-- ARGV: slot, sequence, now (ms or ''), then entries (id:token)
-- Returns: a status per entry: 1 deleted, 0 gone
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, dead, log
local dead, dead_messages, dead_ids, events, meta = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
redis.call('HLEN', dead_ids)
local logged = logging(meta)
redis.call('ZCARD', dead)
local statuses, entries, seen, ids, tokens = {}, {}, {}, {}, {}
for i = 4, #ARGV do
  local entry = ARGV[i]
  local id, token = string.match(entry, '^(.*):(%d+)$')
  local exists = id and not seen[entry] and redis.call('HEXISTS', dead_messages, entry) == 1
  statuses[#statuses + 1] = exists and '1' or '0'
  if exists then
    local n = #entries + 1
    seen[entry], entries[n], ids[n], tokens[n] = true, entry, id, token
  end
end
begin(meta, slot)
if #entries > 0 then
  remove_dead_entries(dead, dead_messages, dead_ids, entries)
  increase(meta, 'dead_purged', #entries)
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'dead_purged', now, 'ids', ids, 'tokens', tokens)
return reply
