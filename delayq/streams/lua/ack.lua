-- Settles messages as done: out of the group's list and out of the stream. The first to come wins, late or not.
-- KEYS: stream stream, ids set, errors hash, delays hash, replies hash
-- ARGV: slot, sequence, group, then a receipt each: entry, id ('' for one that is not among the ids)
-- Returns: a digit a receipt: 1 settled by it, 0 settled before or dead
-- Re-run: answers what it answered.
-- Uses: clock, once
local stream, ids, errors, delays, replies = unpack(KEYS)
local slot, sequence, group = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock('') / 1000)
redis.call('XLEN', stream)
redis.call('SCARD', ids)
for _, hash in ipairs({errors, delays}) do redis.call('HLEN', hash) end
local answers, ended, named = {}, {}, {}
begin(replies, slot)
for i = 4, #ARGV, 2 do
  local won = redis.call('XACK', stream, group, ARGV[i])
  answers[#answers + 1] = string.format('%d', won)
  if won == 1 then
    ended[#ended + 1] = ARGV[i]
    if ARGV[i + 1] ~= '' then named[#named + 1] = ARGV[i + 1] end
  end
end
if #ended > 0 then
  redis.call('XDEL', stream, unpack(ended))
  redis.call('HDEL', errors, unpack(ended))
  redis.call('HDEL', delays, unpack(ended))
end
if #named > 0 then redis.call('SREM', ids, unpack(named)) end
return remember(replies, slot, sequence, now, table.concat(answers))
