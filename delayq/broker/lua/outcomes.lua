-- Reads how messages have ended, as many as the byte budget allows.
-- KEYS: messages hash, attributes hash, results hash, dead_messages hash, dead_ids hash
-- ARGV: ids
-- Returns: for each of the first ids: kept (the message is alive, and has retention), alive (without), or '' for none;
--   then its record, and the head, reason and error of its last death, '' for none
-- Re-run: reads only.
-- Uses: bytes
local messages, attributes, results, dead_messages, dead_ids = unpack(KEYS)
local reply = {}
for i = 1, #ARGV do
  local id = ARGV[i]
  if bytes_left <= 0 then break end
  local alive, record, death = '', '', ''
  if redis.call('HEXISTS', messages, id) == 1 then
    alive = string.find(' ' .. (read_payload(attributes, id) or ''), ' retention=', 1, true) and 'kept' or 'alive'
  else
    record = read_payload(results, id) or ''
    local token = string.match(redis.call('HGET', dead_ids, id) or '', '%d+$', -20) -- no token is longer
    local stored = token and read_payload(dead_messages, id .. ':' .. token) or ''
    local _, stop, reason_size, error_size = string.find(stored, '^%d+ %d+ %d+ %d+ (%d+) (%d+) %d+ ?%d*\n')
    if stop then death = string.sub(stored, 1, stop + reason_size + error_size) end
  end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = alive, record, death
end
return reply
