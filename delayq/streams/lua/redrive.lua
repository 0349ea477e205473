-- Sends dead messages again with their original fields. A message stays dead while its id exists in the stream.
-- KEYS: stream stream, ids set, dead stream, replies hash
-- ARGV: slot, sequence, retries ('' for as many as it was sent with), then entries of the dead letter
-- Returns: a status for each of the first entries: 1 redriven, 2 a message with this id exists, 0 gone, or not written
--   by us
-- Re-run: returns the same reply.
-- Uses: entries, clock, once, pel
local stream, ids, dead, replies = unpack(KEYS)
local slot, sequence, retries = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now, statuses = math.floor(clock('') / 1000), {}
for _, key in ipairs({stream, dead}) do redis.call('XLEN', key) end
redis.call('SISMEMBER', ids, '') -- checks the right to send before anything is written
begin(replies, slot)
for i = 4, #ARGV do
  if bytes_left <= 0 then break end
  local row, status = read(dead, ARGV[i]), '1'
  local id = row and field(row, 'unique') and field(row, 'id')
  if not row or row[#row - 5] ~= 'attempts' then
    status = '0'
  elseif id and redis.call('XLEN', stream) > 0 and redis.call('SISMEMBER', ids, id) == 1 then
    status = '2'
  else
    -- The last six cells are attempts, reason and error, which `bury` has added.
    local fields = {unpack(row, 1, #row - 6)}
    local at = #fields + 1
    for n = 1, #fields, 2 do
      if fields[n] == 'retries' then at = n end
    end
    if retries ~= '' then fields[at], fields[at + 1] = 'retries', retries end
    if id then redis.call('SADD', ids, id) end
    redis.call('XADD', stream, '*', unpack(fields))
    redis.call('XDEL', dead, ARGV[i])
  end
  statuses[#statuses + 1] = status
end
return remember(replies, slot, sequence, now, table.concat(statuses))
