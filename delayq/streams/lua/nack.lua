-- Schedules retries after a delay and stores the errors. Moves messages without retries left to the dead letter.
-- KEYS: stream stream, ids set, dead stream, errors hash, delays hash, replies hash
-- ARGV: slot, sequence, group, consumer, lease (ms), retries (default for messages without the field), dead_max
--   (entries), then per failure: entry, delivery, delay (ms), error ('' for none)
-- Returns: a status for each of the first failures (at most 250): 1 will be retried, 2 dead, 0 not leased under this
--   delivery
-- Re-run: returns the same reply.
-- Uses: entries, clock, once, pel, charges, give, bury
local stream, ids, dead, errors, delays, replies = unpack(KEYS)
local slot, sequence, group, consumer, lease, retries, dead_max = unpack(ARGV, 1, 7)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.ceil(clock('') / 1000)
for _, key in ipairs({stream, dead}) do redis.call('XLEN', key) end
for _, hash in ipairs({errors, delays}) do redis.call('HLEN', hash) end
redis.call('SCARD', ids)
local statuses = {}
local info = find_group(stream, group)
begin(replies, slot)
for i = 8, math.min(#ARGV, 7 + 4 * 250), 4 do
  if bytes_left <= 0 then break end
  local entry, delivery, delay, error = unpack(ARGV, i, i + 3)
  local body = info and holds(stream, group, consumer, entry, delivery) and read(stream, entry)
  if not body then
    statuses[#statuses + 1] = '0'
  elseif charged(delays, entry, tonumber(delivery)) > budget(body, retries) then
    statuses[#statuses + 1] = '2'
    bury(stream, group, ids, dead, errors, delays, dead_max, entry, body, delivery, 'retries spent', error)
  else
    statuses[#statuses + 1] = '1'
    local _, free = note_of(delays, entry, tonumber(delivery))
    give_later(stream, group, delays, entry, now, delay, lease, delivery, free)
    if error ~= '' then redis.call('HSET', errors, entry, error) end
  end
end
return remember(replies, slot, sequence, now, table.concat(statuses))
