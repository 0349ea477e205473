-- Stores a batch of another partition's schedules, once, each with its next occurrence and its state. One that is declared
-- here stays as it is: it was put later.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash, schedule_labels zset, moving hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), source (name of the partition), number (of the batch), batch
-- Returns: 1 stored, 2 it has arrived before; then a status for each schedule of it: 1 stored,
--   0 its name exists
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, labels, signal, pack, batch
local schedules, schedule_specs, schedule_states, schedule_labels, moving, meta, wake = unpack(KEYS)
local slot, sequence, override, source, number, batch = unpack(ARGV)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
for _, hash in ipairs({schedule_specs, schedule_states, moving}) do redis.call('HLEN', hash) end
for _, zset in ipairs({schedules, schedule_labels}) do redis.call('ZCARD', zset) end
redis.call('LLEN', wake)
local status, statuses, stored, names = arrival(moving, 'schedules', source, number), {}, {}, {}
local next_cell = cells_of(status == '1' and batch or '')
for name in next_cell do
  local one = {name = name, at = next_cell(), spec = next_cell(), state = next_cell()}
  local exists = redis.call('HEXISTS', schedule_specs, name) == 1
  statuses[#statuses + 1] = exists and '0' or '1'
  if not exists then stored[#stored + 1], names[#names + 1] = one, name end
end

-- Adds before it removes, as a send: a full Redis must refuse its first write.
for _, one in ipairs(stored) do
  redis.call('HSET', schedule_specs, one.name, one.spec)
  if one.state ~= '' then redis.call('HSET', schedule_states, one.name, one.state) end
  if one.at ~= '' then redis.call('ZADD', schedules, one.at, one.name) end
  index_labels(schedule_labels, one.name, false, one.spec)
end
signal_if_first(wake, schedules, names)
if status == '1' then note_arrival(moving, 'schedules', source, number) end
return remember(meta, slot, sequence, now, status .. table.concat(statuses))
