-- Leases ids that nobody has leased to a cleaner, which then waits in case a worker is about to lease them.
-- KEYS: processing list, then for each id: lease string
-- ARGV: cleaner, time (ms)
-- Returns: for each id 1 if the cleaner has the lease, 0 if another client has
-- Re-run: returns the same.
local cleaner, time = unpack(ARGV)
redis.call('LTRIM', KEYS[1], 0, -1) -- removes nothing: a full Redis refuses a script whose first write adds
local replies = {}
for n = 2, #KEYS do
  local set = redis.call('SET', KEYS[n], cleaner, 'NX', 'PX', time)
  replies[n - 1] = (set or redis.call('MGET', KEYS[n])[1] == cleaner) and 1 or 0
end
return replies
