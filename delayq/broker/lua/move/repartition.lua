-- Changes what `meta` says of partitions, with a higher epoch: that of the queue if it still has the epoch that the caller
-- has read and nothing is cold, that of a partition if its own is lower.
-- KEYS: meta hash
-- ARGV: epoch (to set), read ('none' for none, '' for that of a partition), then fields and values ('' to delete)
-- Returns: 1 changed, 0 not
-- Re-run: changes nothing if the epoch is higher; a caller that got no reply reads what is there.
-- Uses: numbers
local meta = KEYS[1]
local epoch, read = unpack(ARGV, 1, 2)
local current = redis.call('HGET', meta, 'epoch') or 'none'
if read == '' and tonumber(current == 'none' and 0 or current) >= tonumber(epoch) then return 0 end
local schema, cold = unpack(redis.call('HMGET', meta, 'schema', 'cold'))
if read ~= '' and (read ~= current or schema == '8' and (whole(cold) or 0) > 0) then return 0 end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', meta, ARGV[i]) else redis.call('HSET', meta, ARGV[i], ARGV[i + 1]) end
end
redis.call('HSET', meta, 'epoch', epoch)
return 1
