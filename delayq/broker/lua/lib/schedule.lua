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

-- Returns the function that notes, to the minute, the server's latest time (ms) at which schedules were written. It reads
-- now and writes when it is called.
local function noting(meta)
  local noted = tonumber(redis.call('HGET', meta, 'schedules_at')) or 0
  return function(now)
    if now >= noted + 60000 then redis.call('HSET', meta, 'schedules_at', now) end
  end
end

-- Returns the next revision at a time (microseconds): never one that was used before, even if the name is used again.
local function next_revision(revision, time)
  return string.format('%.0f', math.max(revision + 1, time))
end
