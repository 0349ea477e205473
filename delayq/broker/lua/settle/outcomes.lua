-- Reads how messages have ended, as many as the byte budget allows.
-- KEYS: messages hash, attributes hash, successors hash, results hash, dead_messages hash, dead_ids hash
-- ARGV: ids
-- Returns: for each of the first ids: kept (the message is alive, and it or what waits to follow it has retention), alive
--   (without), or '' for none; then its record, of which kept has the first line, and the head, reason and error of its
--   last death, '' for none. While the message is alive, both are of an earlier one
-- Re-run: reads only.
-- Uses: bytes, follower
local messages, attributes, successors, results, dead_messages, dead_ids = unpack(KEYS)

local function has_retention(text)
  return string.find(' ' .. (text or ''), ' retention=', 1, true)
end

local reply = {}
for i = 1, #ARGV do
  local id = ARGV[i]
  if bytes_left <= 0 then break end
  local alive, record, death = '', read_payload(results, id) or '', ''
  if redis.call('HEXISTS', messages, id) == 1 then
    local kept = has_retention(read_payload(attributes, id)) or has_retention(attributes_in(read_payload(successors, id)))
    alive = kept and 'kept' or 'alive'
    if kept then record = string.match(record, '^[^\n]*') end
  end
  local token = string.match(redis.call('HGET', dead_ids, id) or '', '%d+$', -20) -- no token is longer
  local stored = token and read_payload(dead_messages, id .. ':' .. token) or ''
  local _, stop, reason_size, error_size = string.find(stored, '^%d+ %d+ %d+ %d+ (%d+) (%d+) %d+ ?%d*\n')
  if stop then death = string.sub(stored, 1, stop + reason_size + error_size) end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = alive, record, death
end
return reply
