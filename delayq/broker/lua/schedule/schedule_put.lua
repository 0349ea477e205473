-- Stores schedules, each only if it has not changed since the caller read it, and wakes a consumer if one of them is
-- the next of all. Keeps what they have fired so far.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash, schedule_labels zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per schedule: name, revision (0 for none yet), next occurrence (ms, '' for
--   none), paused (0, 1, or until when, ms), spec ('' to keep it)
-- Returns: a status per schedule: 1 stored, 0 it has changed, or the byte budget is spent: read it again
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schedule, labels, signal
local schedules, schedule_specs, schedule_states, schedule_labels, meta, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
redis.call('ZCARD', schedules)
redis.call('ZCARD', schedule_labels)
redis.call('LLEN', wake)
local note = noting(meta)
local statuses, names, specs, states, times, unscheduled, seen, replaced = {}, {}, {}, {}, {}, {}, {}, {}
for i = 4, #ARGV, 5 do
  local name, revision, at, paused, spec = unpack(ARGV, i, i + 4)
  local current, fired, last = state_of(schedule_states, name)
  statuses[#statuses + 1] = '0'
  if current == revision and not seen[name] and bytes_left > 0 then
    statuses[#statuses], seen[name], names[#names + 1] = '1', true, name
    states[#states + 1], states[#states + 2] = name, as_state(next_revision(current, time), fired, last, paused)
    if spec ~= '' then
      replaced[#replaced + 1] = read_payload(schedule_specs, name)
      specs[#specs + 1], specs[#specs + 2] = name, spec
    end
    if at == '' then unscheduled[#unscheduled + 1] = name else times[#times + 1], times[#times + 2] = at, name end
  end
end

-- Definitions first: a full Redis must refuse new ones, but not pausing and resuming.
if #specs > 0 then redis.call('HSET', schedule_specs, unpack(specs)) end
begin(meta, slot)
for i, before in ipairs(replaced) do index_labels(schedule_labels, specs[2 * i - 1], before, specs[2 * i]) end
if #unscheduled > 0 then redis.call('ZREM', schedules, unpack(unscheduled)) end
if #states > 0 then redis.call('HSET', schedule_states, unpack(states)) end
if #times > 0 then
  redis.call('ZADD', schedules, unpack(times))
  signal_if_first(wake, schedules, names)
end
if #states > 0 then note(now) end
return remember(meta, slot, sequence, now, table.concat(statuses))
