-- Counts down the stale entries of a list that were skipped. What another program has pushed was never counted up, so
-- the counter stops at zero.
local function skipped(meta, counter, n)
  if increase(meta, counter, -n) < 0 then redis.call('HSET', meta, counter, 0) end
end
