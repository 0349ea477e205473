-- Ends an item: it is one as long as its data is there, and whoever deletes that has completed it.
-- KEYS: item string, processing list, lease string, queue list
-- ARGV: id, short (ids: the longest queue that is searched for the id)
-- Returns: 1 completed by this call, 0 completed before
-- Re-run: answers 0.
local item, processing, lease, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, short = unpack(ARGV)
redis.call('LLEN', processing)
local length = redis.call('LLEN', queue)
local completed = redis.call('DEL', item)
local listed = redis.call('LREM', processing, 0, id)
redis.call('DEL', lease)
-- A cleaner has put it back: out of a short queue it is taken at once, out of a long one when its turn comes.
if listed == 0 and length <= tonumber(short) then redis.call('LREM', queue, 0, id) end
return completed
