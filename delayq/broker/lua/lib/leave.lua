-- Removes messages from their locations, in batches. Entries of lists stay behind as stale entries and are counted, so
-- that removal is O(log n) in every state and counts stay exact.
local leaving = {}

local function leave(state, id)
  leaving[state] = leaving[state] or {}
  table.insert(leaving[state], id)
end

-- Looks at the types of the zsets that messages leave, since nothing may be written before.
local function look_at_leaving(ranked, throttled, unack)
  redis.call('ZCARD', unack)
  if leaving.ranked then redis.call('ZCARD', ranked) end
  if leaving.throttled then redis.call('ZCARD', throttled) end
end

local function depart(pending, ranked, throttled, unack, garbage, meta)
  if leaving.pending then redis.call('ZREM', pending, unpack(leaving.pending)) end
  if leaving.ranked then redis.call('ZREM', ranked, unpack(leaving.ranked)) end
  if leaving.throttled then redis.call('ZREM', throttled, unpack(leaving.throttled)) end
  if leaving.leased then redis.call('ZREM', unack, unpack(leaving.leased)) end
  if leaving.backoff then
    redis.call('ZREM', unack, unpack(leaving.backoff))
    increase(meta, 'backoffs', -#leaving.backoff)
  end
  if leaving.garbage then redis.call('SREM', garbage, unpack(leaving.garbage)) end
  if leaving.ready then increase(meta, 'stale_ready', #leaving.ready) end
  if leaving.retry then increase(meta, 'stale_retry', #leaving.retry) end
end
