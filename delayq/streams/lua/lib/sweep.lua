-- Finds entries with expired leases in the pending list of a group. They are read, so at most 16 are taken over at a
-- time.

-- Returns a cursor as it was stored; the start for what is none, written by another program.
local function cursor_of(text)
  local time, number = string.match(text or '', '^(%d+)%-(%d+)$')
  return time and #time < 20 and #number < 20 and text or '0-0'
end

-- Moves expired entries to a consumer and calls `recover` with each, even with a deleted one, while messages are
-- missing. Scans a few thousand entries at most. All of them may be in flight, so the next call continues after them.
-- The consumers share the scan of a longer list, and start it at most once a second. Returns whether to continue now.
local function sweep(stream, group, consumer, meta, now, lease, missing, recover, total)
  local cursor_field, wait_field = 'cursor ' .. group, 'rest ' .. group
  local state, scanned, wrapped = redis.call('HMGET', meta, cursor_field, wait_field), 0, false
  local from, wait = cursor_of(state[1]), (whole(state[2]) or 0) - now
  local cursor, number = from, 1
  if wait > 0 and wait <= 1000 then return false end
  -- Taking an entry over forgets who has held it. Looking for what has expired reads the whole list, so a long one is not.
  local holders, idle = {}, math.max(lease - 100, 0) -- the clock of the embedded server goes on meanwhile
  for _, row in ipairs(total <= 10000 and redis.call('XPENDING', stream, group, 'IDLE', idle, '-', '+', 1000) or {}) do
    holders[row[1]] = row[2]
  end
  while missing() > 0 and scanned < 1000 do
    local count = math.min(missing(), number)
    local per_call = 10 * count -- entries that XAUTOCLAIM scans for such a COUNT
    local found = redis.call('XAUTOCLAIM', stream, group, consumer, lease, cursor, 'COUNT', count, 'JUSTID')
    cursor, number = found[1], math.min(2 * number, 16)
    for _, entry in ipairs(found[2]) do recover(entry, holders[entry]) end
    for _, entry in ipairs(found[3] or {}) do recover(entry, nil) end
    if cursor ~= '0-0' then
      scanned = scanned + per_call
    elseif from == '0-0' or wrapped then
      break
    else
      wrapped = true
    end
  end
  if cursor ~= from then redis.call('HSET', meta, cursor_field, cursor) end
  local at_end = wrapped or cursor == '0-0'
  if at_end and scanned >= 1000 then redis.call('HSET', meta, wait_field, string.format('%.0f', now + 1000)) end
  return cursor ~= '0-0' and not (at_end and scanned >= 1000)
end
