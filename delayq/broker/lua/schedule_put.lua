-- Puts schedules in their places, each only if it still stands as the caller has read it, and wakes a consumer if one of
-- them is the next of all. What has been fired so far stays known.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then a schedule each: name, revision (0 for none yet), next occurrence (ms, '' for
--   none), paused (0|1), spec ('' to keep it)
-- Returns: a digit a schedule: 1 put, 0 it stands otherwise
-- Re-run: answers what it answered.
-- Uses: clock, once, schedule, signal
local schedules, schedule_specs, schedule_states, replies, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
redis.call('ZCARD', schedules)
redis.call('LLEN', wake)
local answers, names, specs, states, times, resting, seen = {}, {}, {}, {}, {}, {}, {}
for i = 4, #ARGV, 5 do
  local name, revision, at, paused, spec = unpack(ARGV, i, i + 4)
  local stood, fired, last = state_of(schedule_states, name)
  answers[#answers + 1] = '0'
  if stood == revision and not seen[name] then
    answers[#answers], seen[name], names[#names + 1] = '1', true, name
    states[#states + 1], states[#states + 2] = name, as_state(risen(stood, time), fired, last, paused)
    if spec ~= '' then specs[#specs + 1], specs[#specs + 2] = name, spec end
    if at == '' then resting[#resting + 1] = name else times[#times + 1], times[#times + 2] = at, name end
  end
end

-- A definition first: to keep one is what a full Redis refuses, to pause or to resume is not.
if #specs > 0 then redis.call('HSET', schedule_specs, unpack(specs)) end
begin(replies, slot)
if #resting > 0 then redis.call('ZREM', schedules, unpack(resting)) end
if #states > 0 then redis.call('HSET', schedule_states, unpack(states)) end
if #times > 0 then
  redis.call('ZADD', schedules, unpack(times))
  signal_if_first(wake, schedules, names)
end
return remember(replies, slot, sequence, now, table.concat(answers))
