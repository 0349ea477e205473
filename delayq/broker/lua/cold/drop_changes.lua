-- Deletes what was noted of messages that are not in the cold tier, unless it was noted anew since.
-- KEYS: cold_changes hash
-- ARGV: latest (ms: what was noted after it stays), then ids
-- Returns: how many were deleted
-- Re-run: deletes nothing more.
local cold_changes = KEYS[1]
local latest = ARGV[1]
local dropped = 0
for i = 2, #ARGV do
  local at = tonumber(string.match(redis.call('HGET', cold_changes, ARGV[i]) or '', '^%S+ (%d+)'))
  if at and at <= tonumber(latest) then dropped = dropped + redis.call('HDEL', cold_changes, ARGV[i]) end
end
return dropped
