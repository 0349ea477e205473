-- Finds entries with expired leases in the pending list of a group. They are read, so at most 16 are taken over at a
-- time.

-- Requeues an entry that a blocking read has taken: it is added again as a new one, as only that wakes the next read.
local function requeue(stream, group, errors, delays, entry, delivery, body, lease)
  if body and #body > max_cells then return give(stream, group, nobody, entry, lease, delivery - 1) end
  remove(stream, group, errors, delays, entry)
  if body then redis.call('XADD', stream, '*', unpack(body)) end
end

-- Returns a cursor as it was stored; the start for what is none, written by another program.
local function cursor_of(text)
  local time, number = string.match(text or '', '^(%d+)%-(%d+)$')
  return time and #time < 20 and #number < 20 and text or '0-0'
end

-- Calls `recover` with each entry whose lease has expired, its consumer and its delivery, even with a deleted one, while
-- messages are missing. Reads a thousand rows at most. All of them may be in flight, so the next call continues after
-- them. The consumers share the reading of a longer list, and start it at most once a second. Returns whether to
-- continue now.
local function sweep(stream, group, meta, now, lease, missing, recover, total)
  local cursor_field, wait_field = 'cursor ' .. group, 'rest ' .. group
  local state, scanned, wrapped = redis.call('HMGET', meta, cursor_field, wait_field), 0, false
  local from, wait = cursor_of(state[1]), (whole(state[2]) or 0) - now
  local cursor, short = from, total <= 10000 -- of a short list, the server finds what has expired
  if wait > 0 and wait <= 1000 then return false end
  while missing() > 0 and scanned < 1000 do
    local first, count = '(' .. cursor, short and math.min(missing(), 16) or 100
    local rows = short and redis.call('XPENDING', stream, group, 'IDLE', lease, first, '+', count)
      or redis.call('XPENDING', stream, group, first, '+', count)
    for _, row in ipairs(rows) do
      if missing() <= 0 then break end
      cursor = row[1]
      if row[3] >= lease then recover(row[1], row[2], row[4]) end
    end
    scanned = scanned + count
    if missing() > 0 and #rows < count then
      cursor = '0-0'
      if from == '0-0' or wrapped then break end
      wrapped = true
    end
  end
  if cursor ~= from then redis.call('HSET', meta, cursor_field, cursor) end
  local at_end = wrapped or cursor == '0-0'
  if at_end and scanned >= 1000 then redis.call('HSET', meta, wait_field, string.format('%.0f', now + 1000)) end
  return cursor ~= '0-0' and not (at_end and scanned >= 1000)
end
