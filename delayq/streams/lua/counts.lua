-- Counts the messages in each state at one moment.
-- KEYS: stream stream, dead stream
-- ARGV: group
-- Returns: entries of the stream, entries pending in the group, those of them without a consumer, entries of the dead
--   letter
-- Re-run: reads only.
-- Uses: pel
local stream, dead = unpack(KEYS)
local length, pending, backoff = redis.call('XLEN', stream), 0, 0
if find_group(stream, ARGV[1]) then
  local summary = redis.call('XPENDING', stream, ARGV[1])
  pending = summary[1]
  for _, one in ipairs(summary[4] or {}) do
    if one[1] == nobody then backoff = tonumber(one[2]) end
  end
end
return {length, pending, backoff, redis.call('XLEN', dead)}
