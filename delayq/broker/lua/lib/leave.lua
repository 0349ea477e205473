-- Removes messages from their locations, in batches. Entries of lists stay behind as stale entries and are counted, so
-- that removal is O(log n) in every state and counts stay exact.
local leaving = {pending = {}, leased = {}, backoff = {}, garbage = {}, ready = {}, retry = {}}

local function leave(state, id)
  table.insert(leaving[state], id)
end

local function depart(pending, unack, garbage, meta)
  if #leaving.pending > 0 then redis.call('ZREM', pending, unpack(leaving.pending)) end
  if #leaving.leased > 0 then redis.call('ZREM', unack, unpack(leaving.leased)) end
  if #leaving.backoff > 0 then
    redis.call('ZREM', unack, unpack(leaving.backoff))
    redis.call('HINCRBY', meta, 'backoffs', -#leaving.backoff)
  end
  if #leaving.garbage > 0 then redis.call('SREM', garbage, unpack(leaving.garbage)) end
  if #leaving.ready > 0 then redis.call('HINCRBY', meta, 'stale_ready', #leaving.ready) end
  if #leaving.retry > 0 then redis.call('HINCRBY', meta, 'stale_retry', #leaving.retry) end
end
