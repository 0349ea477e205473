-- Stores an item and puts its id at the left end of the queue: both or neither.
-- KEYS: item string, queue list
-- ARGV: id, data, known (1: the id is known to be new; 0: check)
-- Returns: 1 added, 0 an item with this id exists
-- Re-run: returns 0 and changes nothing; with `known`, lists the id once more.
local item, queue = KEYS[1], KEYS[2]
local id, data, known = unpack(ARGV)
redis.call('LLEN', queue)
if known == '0' and redis.call('EXISTS', item) == 1 then return 0 end
redis.call('SET', item, data)
redis.call('LPUSH', queue, id)
return 1
