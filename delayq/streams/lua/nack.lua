-- Has messages delivered again after a delay, with the error kept; moves them to the dead letter when no retry is left.
-- KEYS: stream stream, ids set, dead stream, errors hash, delays hash, replies hash
-- ARGV: slot, sequence, group, holder, lease (ms), retries (of messages that do not say), dead_max (entries), then a
--   failure each: entry, delivery, delay (ms), error ('' for none)
-- Returns: a digit each of the first 250 failures: 1 will be retried, 2 dead, 0 not held under this delivery
-- Re-run: answers what it answered.
-- Uses: clock, once, pel, give, bury
local stream, ids, dead, errors, delays, replies = unpack(KEYS)
local slot, sequence, group, holder, lease, retries, dead_max = unpack(ARGV, 1, 7)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.ceil(clock('') / 1000)
for _, key in ipairs({stream, dead}) do redis.call('XLEN', key) end
for _, hash in ipairs({errors, delays}) do redis.call('HLEN', hash) end
redis.call('SCARD', ids)
local answers = {}
local known = find_group(stream, group)
begin(replies, slot)
for i = 8, math.min(#ARGV, 7 + 4 * 250), 4 do
  local entry, delivery, delay, error = unpack(ARGV, i, i + 3)
  local body = known and holds(stream, group, holder, entry, delivery) and read(stream, entry)
  if not body then
    answers[#answers + 1] = '0'
  elseif tonumber(delivery) > budget(body, retries) then
    answers[#answers + 1] = '2'
    bury(stream, group, ids, dead, errors, delays, dead_max, entry, body, delivery, 'retries spent', error)
  else
    answers[#answers + 1] = '1'
    -- Redis knows of no idle time below zero: a longer delay is looked up when the lease would be over.
    if tonumber(delay) > tonumber(lease) then redis.call('HSET', delays, entry, string.format('%.0f', now + delay)) end
    give(stream, group, nobody, entry, math.max(lease - delay, 0), delivery)
    if error ~= '' then redis.call('HSET', errors, entry, error) end
  end
end
return remember(replies, slot, sequence, now, table.concat(answers))
