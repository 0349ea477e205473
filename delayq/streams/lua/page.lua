-- Reads one page of the messages in a state, in the order of their entries.
-- KEYS: stream stream, dead stream, errors hash, delays hash
-- ARGV: group, state (ready, active, backoff or dead), limit (entries to read), after (entry, '' at the start),
--   preview (bytes of each payload to return, -1 for all)
-- Returns: now (ms), the entry after which the next page begins ('' on the last page), rows, entries read
-- Re-run: reads only.
-- Uses: entries, clock, pel, charges, row
local stream, dead, errors, delays = unpack(KEYS)
local group, state, limit, after, preview = unpack(ARGV, 1, 5)
local now, info = math.floor(clock('') / 1000), find_group(stream, group)
local rows, scanned, from = {}, 0, after
limit = tonumber(limit)

local function is_full() return scanned >= limit or bytes_left <= 0 end

local function add(entry, pending, body)
  scanned, from = scanned + 1, entry
  if not body then return end -- deleted by another client, but not acknowledged
  rows[#rows + 1] = row_of(errors, delays, preview, entry, pending, body)
end

if state == 'ready' or state == 'dead' then
  local key = state == 'dead' and dead or stream
  local delivered = state == 'ready' and info and field(info, 'last-delivered-id')
  -- The group may have read beyond the end of the previous page.
  if delivered and (from == '' or #redis.call('XRANGE', key, '(' .. from, delivered, 'COUNT', 1) > 0) then
    from = delivered
  end
  each_entry(limit, function(count)
    return redis.call('XRANGE', key, from == '' and '-' or '(' .. from, '+', 'COUNT', count)
  end, function(entry, body) add(entry, nil, body) end)
elseif info then
  local of_consumer = state == 'backoff' and {nobody} or {}
  local start = from == '' and '-' or '(' .. from
  for _, row in ipairs(redis.call('XPENDING', stream, group, start, '+', limit, unpack(of_consumer))) do
    if is_full() then break end
    add(row[1], row, (row[2] == nobody) == (state == 'backoff') and read(stream, row[1]))
  end
end
return {now, is_full() and from or '', rows, scanned}
