-- Packs entries of the dead letter into a batch for another partition, and takes them out, as many as the byte budget
-- allows.
-- KEYS: dead zset, dead_messages hash, dead_ids hash, moving hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), target (name of the partition), then entries (id:token)
-- Returns: a status for each of the first entries: 1 moves, 0 gone; then the numbers of all batches that are on the same
--   way
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, dead, pack, batch
local dead, dead_messages, dead_ids, moving, meta = unpack(KEYS)
local slot, sequence, override, target = unpack(ARGV, 1, 4)
local past = answered(meta, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
redis.call('HLEN', dead_ids)
redis.call('HLEN', moving)
local statuses, entries, seen = {}, {}, {}
for i = 5, #ARGV do
  if bytes_left <= 0 then break end
  local entry, status = ARGV[i], '0'
  local died = not seen[entry] and redis.call('ZSCORE', dead, entry)
  local stored = died and string.find(entry, ':%d+$') and read_payload(dead_messages, entry)
  if stored then
    status, seen[entry], entries[#entries + 1] = '1', true, entry
    add_cells(entry, died, stored)
  end
  statuses[#statuses + 1] = status
end
begin(meta, slot)
if #entries > 0 then remove_dead_entries(dead, dead_messages, dead_ids, entries) end
local order = send_off(moving, 'deaths', target, time)
return remember(meta, slot, sequence, now, table.concat(statuses) .. ' ' .. order)
