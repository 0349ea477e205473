-- Adds messages to the stream. A message with an explicit id is skipped while another message with this id exists.
-- KEYS: stream stream, ids set, meta hash, replies hash
-- ARGV: slot, sequence, max_length (entries, 0 for no limit), then per message: id, unique (1; 0 for a generated id,
--   which needs no check), retries, payload, headers ('' for none)
-- Returns: a status per message: 1 new, 0 exists; then the time (microseconds since 1970)
-- Re-run: returns the same reply.
-- Uses: clock, once
local stream, ids, meta, replies = unpack(KEYS)
local slot, sequence, max_length = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local time = clock('')
local now = math.floor(time / 1000)
local length = redis.call('XLEN', stream)
redis.call('SISMEMBER', ids, '') -- checks the right to send before anything is written
redis.call('HLEN', meta)
local statuses, new_rows, seen, unique_ids = {}, {}, {}, {}
-- An id may be left over from a message that another client deleted. In an empty stream no id is in use.
for i = 4, #ARGV, 5 do
  local id, unique = ARGV[i], ARGV[i + 1] == '1'
  local exists = unique and (seen[id] or length > 0 and redis.call('SISMEMBER', ids, id) == 1)
  statuses[#statuses + 1] = exists and '0' or '1'
  if not exists then
    local row = {'id', id, 'payload', ARGV[i + 3], 'retries', ARGV[i + 2]}
    if ARGV[i + 4] ~= '' then row[7], row[8] = 'headers', ARGV[i + 4] end
    if unique then
      seen[id], unique_ids[#unique_ids + 1] = true, id
      row[#row + 1], row[#row + 2] = 'unique', '1'
    end
    new_rows[#new_rows + 1] = row
  end
end
if tonumber(max_length) > 0 and #new_rows > 0 and length + #new_rows > tonumber(max_length) then
  return redis.error_reply('QUEUEFULL the stream holds ' .. length .. ' of at most ' .. max_length .. ' messages')
end

-- Adds first, unlike the other scripts: a full Redis must refuse the first write.
for _, row in ipairs(new_rows) do redis.call('XADD', stream, '*', unpack(row)) end
if #unique_ids > 0 then redis.call('SADD', ids, unpack(unique_ids)) end
return remember(replies, slot, sequence, now, string.format('%s %.0f', table.concat(statuses), time))
