-- Packs schedules with their states into a batch for another partition, and takes them out, as many as the byte budget
-- allows. A firing that began before finds them changed.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash, schedule_labels zset, moving hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), target (name of the partition), then names
-- Returns: a status for each of the first names: 1 moves, 0 no such schedule; then the numbers of all batches that are on
--   the same way
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, labels, pack, batch
local schedules, schedule_specs, schedule_states, schedule_labels, moving, meta = unpack(KEYS)
local slot, sequence, override, target = unpack(ARGV, 1, 4)
local past = answered(meta, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
redis.call('ZCARD', schedules)
redis.call('HLEN', schedule_states)
redis.call('ZCARD', schedule_labels)
redis.call('HLEN', moving)
local statuses, found, seen = {}, {}, {}
for i = 5, #ARGV do
  if bytes_left <= 0 then break end
  local name, status = ARGV[i], '0'
  local spec = not seen[name] and read_payload(schedule_specs, name)
  if spec then
    status, seen[name], found[#found + 1] = '1', true, {name, spec}
    add_cells(name, redis.call('ZSCORE', schedules, name), spec, redis.call('HGET', schedule_states, name))
  end
  statuses[#statuses + 1] = status
end
begin(meta, slot)
for _, one in ipairs(found) do
  redis.call('ZREM', schedules, one[1])
  redis.call('HDEL', schedule_specs, one[1])
  redis.call('HDEL', schedule_states, one[1])
  index_labels(schedule_labels, one[1], one[2], false)
end
local order = send_off(moving, 'schedules', target, time)
return remember(meta, slot, sequence, now, table.concat(statuses) .. ' ' .. order)
