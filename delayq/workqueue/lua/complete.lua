-- Completes an item. An item exists as long as its data; the call that deletes the data completes it.
-- KEYS: item string, processing list, lease string, queue list
-- ARGV: id, max_scanned (ids: a longer queue is not searched for the id)
-- Returns: 1 completed by this call, 0 completed before
-- Re-run: returns 0.
local item, processing, lease, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, max_scanned = unpack(ARGV)
redis.call('LLEN', processing)
local length = redis.call('LLEN', queue)
local completed = redis.call('DEL', item)
local listed = redis.call('LREM', processing, 0, id)
redis.call('DEL', lease)
-- A cleaner has requeued it: remove it from a short queue now; in a long one a claim drops it when its turn comes.
if listed == 0 and length <= tonumber(max_scanned) then redis.call('LREM', queue, 0, id) end
return completed
