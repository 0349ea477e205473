-- What is stored of an entry beside the pending list: when it is delivered again, and how many deliveries were free.

-- Returns the time (ms) of an entry's next delivery, nil if its lease says it, and how many of its `deliveries` cost no
-- retry: those of what was released, or had not started. Another program's time may be none, or never come.
local function note_of(delays, entry, deliveries)
  local at, free = string.match(redis.call('HGET', delays, entry) or '', '^(%d*) ?(%d*)$')
  at, free = tonumber(at), tonumber(free) or 0
  return at and at <= 7258118399999 and at or nil, math.min(free, deliveries)
end

-- Returns how many deliveries of an entry count as attempts.
local function charged(delays, entry, deliveries)
  local _, free = note_of(delays, entry, deliveries)
  return deliveries - free
end
