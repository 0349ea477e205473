-- The state of a schedule is "revision fired last paused": a number that every change raises, messages fired, the time
-- of the last occurrence (ms, 0 for none), 0 or 1.

-- Returns them as texts, zeros for a schedule that does not exist.
local function state_of(schedule_states, name)
  local stored = redis.call('HGET', schedule_states, name)
  return string.match(stored or '0 0 0 0', '^(%d+) (%d+) (%d+) (%d+)$')
end

local function as_state(revision, fired, last, paused)
  return table.concat({revision, fired, last, paused}, ' ')
end

-- Returns the next revision at a time (microseconds): never one that was used before, even if the name is used again.
local function next_revision(revision, time)
  return string.format('%.0f', math.max(revision + 1, time))
end
