-- Settles messages as done: acknowledges and deletes their entries. The first ack wins, even after the lease expired.
-- KEYS: stream stream, ids set, errors hash, delays hash, replies hash
-- ARGV: slot, sequence, group, then per receipt: entry, id ('' if it is not in the set of ids)
-- Returns: a status per receipt: 1 settled by it, 0 settled before or dead
-- Re-run: returns the same reply.
-- Uses: clock, once
local stream, ids, errors, delays, replies = unpack(KEYS)
local slot, sequence, group = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock('') / 1000)
redis.call('XLEN', stream)
redis.call('SCARD', ids)
for _, hash in ipairs({errors, delays}) do redis.call('HLEN', hash) end
local statuses, done, unique_ids = {}, {}, {}
begin(replies, slot)
for i = 4, #ARGV, 2 do
  local acked = redis.call('XACK', stream, group, ARGV[i])
  statuses[#statuses + 1] = string.format('%d', acked)
  if acked == 1 then
    done[#done + 1] = ARGV[i]
    if ARGV[i + 1] ~= '' then unique_ids[#unique_ids + 1] = ARGV[i + 1] end
  end
end
if #done > 0 then
  redis.call('XDEL', stream, unpack(done))
  redis.call('HDEL', errors, unpack(done))
  redis.call('HDEL', delays, unpack(done))
end
if #unique_ids > 0 then redis.call('SREM', ids, unpack(unique_ids)) end
return remember(replies, slot, sequence, now, table.concat(statuses))
