-- Adds messages to the stream; one with an id of its own is left out while a message of this id lives.
-- KEYS: stream stream, ids set, meta hash, replies hash
-- ARGV: slot, sequence, max_length (entries, 0 for none), then a message each: id, unique (1, or 0 for an id that is
--   new in any case), retries, payload, headers ('' for none)
-- Returns: a digit a message: 1 new, 0 exists
-- Re-run: answers what it answered.
-- Uses: clock, once
local stream, ids, meta, replies = unpack(KEYS)
local slot, sequence, max_length = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock('') / 1000)
local length = redis.call('XLEN', stream)
redis.call('SISMEMBER', ids, '') -- which only those may ask who may send
redis.call('HLEN', meta)
local answers, fresh, seen, named = {}, {}, {}, {}
-- Of an id that somebody has left behind with a deleted message no message lives, at the latest in an empty stream.
for i = 4, #ARGV, 5 do
  local id, unique = ARGV[i], ARGV[i + 1] == '1'
  local lives = unique and (seen[id] or length > 0 and redis.call('SISMEMBER', ids, id) == 1)
  answers[#answers + 1] = lives and '0' or '1'
  if not lives then
    local row = {'id', id, 'payload', ARGV[i + 3], 'retries', ARGV[i + 2]}
    if ARGV[i + 4] ~= '' then row[7], row[8] = 'headers', ARGV[i + 4] end
    if unique then
      seen[id], named[#named + 1] = true, id
      row[#row + 1], row[#row + 2] = 'unique', '1'
    end
    fresh[#fresh + 1] = row
  end
end
if tonumber(max_length) > 0 and #fresh > 0 and length + #fresh > tonumber(max_length) then
  return redis.error_reply('QUEUEFULL the stream holds ' .. length .. ' of at most ' .. max_length .. ' messages')
end

-- Adds first, unlike the others: its first write must be the one that a full Redis refuses.
for _, row in ipairs(fresh) do redis.call('XADD', stream, '*', unpack(row)) end
if #named > 0 then redis.call('SADD', ids, unpack(named)) end
return remember(replies, slot, sequence, now, table.concat(answers))
