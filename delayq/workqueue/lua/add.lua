-- Stores an item and puts its id at the left end of the queue, both or neither.
-- KEYS: item string, queue list
-- ARGV: id, data, known (1: the caller knows that the id is new; 0: look)
-- Returns: 1 added, 0 there is an item of this id
-- Re-run: answers 0 and changes nothing; with `known`, lists the id once more.
local item, queue = KEYS[1], KEYS[2]
local id, data, known = unpack(ARGV)
redis.call('LLEN', queue)
if known == '0' and redis.call('EXISTS', item) == 1 then return 0 end
redis.call('SET', item, data)
redis.call('LPUSH', queue, id)
return 1
