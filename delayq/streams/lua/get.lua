-- Reads one entry with its state.
-- KEYS: stream stream, dead stream, errors hash, delays hash
-- ARGV: group, entry, where (stream or dead)
-- Returns: now (ms), then the state and the row of the entry; only now if there is no such entry, or if it was
--   acknowledged without being deleted
-- Re-run: reads only.
-- Uses: entries, clock, pel, charges, row
local stream, dead, errors, delays = unpack(KEYS)
local group, entry, where = unpack(ARGV, 1, 3)
local now = math.floor(clock('') / 1000)
local body, pending, state = read(where == 'dead' and dead or stream, entry), nil, where
local info = body and where == 'stream' and find_group(stream, group)
if info then pending = redis.call('XPENDING', stream, group, entry, entry, 1)[1] end
if pending then
  state = pending[2] == nobody and 'backoff' or 'active'
elseif where == 'stream' then
  local is_ready = not info or #redis.call('XRANGE', stream, '(' .. field(info, 'last-delivered-id'), entry) > 0
  state = is_ready and 'ready' or nil
end
if not body or not state then return {now} end
return {now, state, row_of(errors, delays, -1, entry, pending, body)}
