-- Leases the item at the right end of the queue, if it is among those that a look has found there: what is popped is
-- leased by the same script, so that no cleaner ever sees it without a lease.
-- KEYS: queue list, processing list, then for each id: item string, lease string
-- ARGV: session, lease (ms), look (ids), then ids
-- Returns: {1, id, data} for a lease, else {0, then the ids at the right end of the queue}: none if it is empty
-- Re-run: leases the next item; the first comes back when its lease has run out.
local queue, processing = KEYS[1], KEYS[2]
local session, lease, look = unpack(ARGV, 1, 3)
local place = {}
for n = 4, #ARGV do place[ARGV[n]] = 2 * n - 5 end
redis.call('LLEN', processing)
local id = redis.call('LINDEX', queue, -1)
while id and place[id] do
  local data = redis.call('MGET', KEYS[place[id]])[1] -- not GET: what is no string is no item, and no error
  local held = redis.call('EXISTS', KEYS[place[id] + 1]) == 1
  redis.call('RPOP', queue)
  if data and not held then
    redis.call('LPUSH', processing, id)
    redis.call('SET', KEYS[place[id] + 1], session, 'PX', lease)
    return {1, id, data}
  elseif data and not redis.call('LPOS', processing, id) then
    -- Listed twice, or put back by a cleaner before its worker had set the lease: whoever holds it keeps it, and a
    -- cleaner will find it when that lease runs out.
    redis.call('LPUSH', processing, id)
  end
  id = redis.call('LINDEX', queue, -1)
end
local found = redis.call('LRANGE', queue, -look, -1)
return {0, unpack(found)}
