-- Reads one page of the messages in a state, in the order of their entries.
-- KEYS: stream stream, dead stream, errors hash, delays hash
-- ARGV: group, state (ready, active, backoff or dead), limit (entries to read), after (entry, '' at the start),
--   preview (bytes of each payload to return), max_bytes (of payloads: the page ends after so many)
-- Returns: now (ms), the entry after which the next page begins ('' on the last page), rows
-- Re-run: reads only.
-- Uses: clock, pel, row
local stream, dead, errors, delays = unpack(KEYS)
local group, state, limit, after, preview, max_bytes = unpack(ARGV, 1, 6)
local now, info = math.floor(clock('') / 1000), find_group(stream, group)
local rows, scanned, from = {}, 0, after
limit, max_bytes = tonumber(limit), tonumber(max_bytes)

local function is_full() return scanned >= limit or max_bytes <= 0 end

local function add(entry, pending, body)
  scanned, from = scanned + 1, entry
  if not body then return end -- deleted by another client, but not acknowledged
  local row, size = row_of(errors, delays, preview, entry, pending, body)
  rows[#rows + 1], max_bytes = row, max_bytes - size
end

if state == 'ready' or state == 'dead' then
  local key = state == 'dead' and dead or stream
  local delivered = state == 'ready' and info and field(info, 'last-delivered-id')
  -- The group may have read beyond the end of the previous page.
  if delivered and (from == '' or #redis.call('XRANGE', key, '(' .. from, delivered, 'COUNT', 1) > 0) then
    from = delivered
  end
  -- A few at a time: their size is not known in advance.
  while not is_full() do
    local start, count = from == '' and '-' or '(' .. from, math.min(16, limit - scanned)
    local found = redis.call('XRANGE', key, start, '+', 'COUNT', count)
    if #found == 0 then break end
    for _, row in ipairs(found) do add(row[1], nil, row[2]) end
  end
elseif info then
  local of_consumer = state == 'backoff' and {nobody} or {}
  local start = from == '' and '-' or '(' .. from
  for _, row in ipairs(redis.call('XPENDING', stream, group, start, '+', limit, unpack(of_consumer))) do
    if is_full() then break end
    add(row[1], row, (row[2] == nobody) == (state == 'backoff') and read(stream, row[1]))
  end
end
return {now, is_full() and from or '', rows}
