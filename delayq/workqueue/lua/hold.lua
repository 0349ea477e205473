-- Leases ids that nobody holds to a cleaner, while it waits to see whether a worker is about to lease them.
-- KEYS: processing list, then for each id: lease string
-- ARGV: cleaner, time (ms)
-- Returns: for each id 1 if the cleaner holds it, 0 if another does
-- Re-run: holds what it holds.
local cleaner, time = unpack(ARGV)
redis.call('LTRIM', KEYS[1], 0, -1) -- takes nothing away: a full Redis refuses a first write that adds
local answers = {}
for n = 2, #KEYS do
  local set = redis.call('SET', KEYS[n], cleaner, 'NX', 'PX', time)
  answers[n - 1] = (set or redis.call('MGET', KEYS[n])[1] == cleaner) and 1 or 0
end
return answers
