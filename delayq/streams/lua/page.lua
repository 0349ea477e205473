-- Reads one page of the messages in a state, in the order of their entries.
-- KEYS: stream stream, dead stream, errors hash, delays hash
-- ARGV: group, state (ready, active, backoff or dead), limit (entries to look at), after (entry, '' at the start),
--   preview (bytes of each payload to return), room (bytes of payloads after which the page ends)
-- Returns: now (ms), the entry after which the next page begins ('' at the end), rows
-- Re-run: reads only.
-- Uses: clock, pel, row
local stream, dead, errors, delays = unpack(KEYS)
local group, state, limit, after, preview, room = unpack(ARGV, 1, 6)
local now, known = math.floor(clock('') / 1000), find_group(stream, group)
local rows, looked, from = {}, 0, after
limit, room = tonumber(limit), tonumber(room)

local function is_full() return looked >= limit or room <= 0 end

local function add(entry, held, body)
  looked, from = looked + 1, entry
  if not body then return end -- deleted by others, and not acknowledged
  local row, size = row_of(errors, delays, preview, entry, held, body)
  rows[#rows + 1], room = row, room - size
end

if state == 'ready' or state == 'dead' then
  local key = state == 'dead' and dead or stream
  local delivered = state == 'ready' and known and field(known, 'last-delivered-id')
  -- The group may have gone beyond the end of the page before.
  if delivered and (from == '' or #redis.call('XRANGE', key, '(' .. from, delivered, 'COUNT', 1) > 0) then
    from = delivered
  end
  -- A few at a time: how large they are is not known before.
  while not is_full() do
    local found = redis.call('XRANGE', key, from == '' and '-' or '(' .. from, '+', 'COUNT', math.min(16, limit - looked))
    if #found == 0 then break end
    for _, one in ipairs(found) do add(one[1], nil, one[2]) end
  end
elseif known then
  local whose = state == 'backoff' and {nobody} or {}
  local start = from == '' and '-' or '(' .. from
  for _, one in ipairs(redis.call('XPENDING', stream, group, start, '+', limit, unpack(whose))) do
    if is_full() then break end
    add(one[1], one, (one[2] == nobody) == (state == 'backoff') and read(stream, one[1]))
  end
end
return {now, is_full() and from or '', rows}
