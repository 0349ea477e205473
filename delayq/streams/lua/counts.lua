-- Counts the messages in each state, as of one moment.
-- KEYS: stream stream, dead stream
-- ARGV: group
-- Returns: entries of the stream, those that the group has delivered and not settled, those of them that nobody holds,
--   entries of the dead letter
-- Re-run: reads only.
-- Uses: pel
local stream, dead = unpack(KEYS)
local length, held, free = redis.call('XLEN', stream), 0, 0
if find_group(stream, ARGV[1]) then
  local known = redis.call('XPENDING', stream, ARGV[1])
  held = known[1]
  for _, one in ipairs(known[4] or {}) do
    if one[1] == nobody then free = tonumber(one[2]) end
  end
end
return {length, held, free, redis.call('XLEN', dead)}
