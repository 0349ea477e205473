-- Reads all that is known of one entry.
-- KEYS: stream stream, dead stream, errors hash, delays hash
-- ARGV: group, entry, where (stream or dead)
-- Returns: now (ms), then its state and its row; now alone, if it is not there, or settled by one who does not delete
-- Re-run: reads only.
-- Uses: clock, pel, row
local stream, dead, errors, delays = unpack(KEYS)
local group, entry, where = unpack(ARGV, 1, 3)
local now = math.floor(clock('') / 1000)
local body, held, state = read(where == 'dead' and dead or stream, entry), nil, where
local known = body and where == 'stream' and find_group(stream, group)
if known then held = redis.call('XPENDING', stream, group, entry, entry, 1)[1] end
if held then
  state = held[2] == nobody and 'backoff' or 'active'
elseif where == 'stream' then
  local ahead = not known or #redis.call('XRANGE', stream, '(' .. field(known, 'last-delivered-id'), entry) > 0
  state = ahead and 'ready' or nil
end
if not body or not state then return {now} end
return {now, state, (row_of(errors, delays, -1, entry, held, body))}
