-- Leases the item at the right end of the queue if its id is one of the arguments. One script pops and leases it, so no
-- cleaner ever sees it without a lease.
-- KEYS: queue list, processing list, then for each id: item string, lease string
-- ARGV: session, lease (ms), peek (ids to return), then ids
-- Returns: {1, id, data} if leased, else {0, then the ids at the right end of the queue}: none if it is empty
-- Re-run: leases the next item; the first comes back when its lease has expired.
local queue, processing = KEYS[1], KEYS[2]
local session, lease, peek = unpack(ARGV, 1, 3)
local index = {}
for n = 4, #ARGV do index[ARGV[n]] = 2 * n - 5 end
redis.call('LLEN', processing)
local id = redis.call('LINDEX', queue, -1)
while id and index[id] do
  local data = redis.call('MGET', KEYS[index[id]])[1] -- not GET, which raises for a key that is not a string
  local leased = redis.call('EXISTS', KEYS[index[id] + 1]) == 1
  redis.call('RPOP', queue)
  if data and not leased then
    redis.call('LPUSH', processing, id)
    redis.call('SET', KEYS[index[id] + 1], session, 'PX', lease)
    return {1, id, data}
  elseif data and not redis.call('LPOS', processing, id) then
    -- The id was listed twice, or a cleaner requeued it before its worker had set the lease. The holder keeps it; a
    -- cleaner finds it when that lease expires.
    redis.call('LPUSH', processing, id)
  end
  id = redis.call('LINDEX', queue, -1)
end
local found = redis.call('LRANGE', queue, -peek, -1)
return {0, unpack(found)}
