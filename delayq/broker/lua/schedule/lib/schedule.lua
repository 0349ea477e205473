-- The state of a schedule is "revision fired last paused": a number that every change raises, messages fired, the time
-- of the last occurrence (ms, 0 for none), and 0, 1 if it is paused, or until when it is (ms).

-- Returns them as texts, zeros for a schedule that does not exist, or whose state cannot be read.
local function state_of(schedule_states, name)
  local stored = redis.call('HGET', schedule_states, name)
  local revision, fired, last, paused = string.match(stored or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if not (whole(revision) and whole(fired) and whole(last) and whole(paused)) then return '0', '0', '0', '0' end
  return revision, fired, last, paused
end

local function as_state(revision, fired, last, paused)
  return table.concat({revision, fired, last, paused}, ' ')
end

-- Returns the function that notes, to the minute, the server's latest time (ms) at which schedules were written. It reads
-- now and writes when it is called.
local function noting(meta)
  local noted = whole(redis.call('HGET', meta, 'schedules_at')) or 0
  return function(now)
    if now >= noted + 60000 then redis.call('HSET', meta, 'schedules_at', now) end
  end
end

-- Returns the next revision at a time (microseconds): never one that was used before, even if the name is used again.
local function next_revision(revision, time)
  return string.format('%.0f', math.max(revision + 1, time))
end
