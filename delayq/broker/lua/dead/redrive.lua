-- Sends dead messages again, as many as the byte budget allows: due at once or one after another, with new retries, as
-- new lives of their ids.
-- KEYS: pending zset, retries hash, messages hash, headers hash, attributes hash, dead zset, dead_messages hash,
--   dead_ids hash, events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), retries ('' for as many as it was sent with), first (ms after now at which the
--   first is due), interval (ms, of each other after the one before it), edited (1 if its new payload follows each entry,
--   else 0), then entries (id:token)
-- Returns: a status for each of the first entries: 1 redriven, 2 a message with this id exists, 0 gone
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, dead, signal, log
local pending, retries, messages, headers, attributes, dead, dead_messages, dead_ids, events, meta, wake =
  unpack(KEYS)
local slot, sequence, override, retry_count, first, interval, edited = unpack(ARGV, 1, 7)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
for _, hash in ipairs({retries, headers, attributes, dead_ids}) do redis.call('HLEN', hash) end
local logged = logging(meta)
redis.call('ZCARD', pending)
redis.call('ZCARD', dead)
redis.call('LLEN', wake)
local statuses, entries, lives, seen, alive = {}, {}, {}, {}, {}

-- Returns attributes without those of the life before: what was counted or reported, when it expired, and when
-- its burst began.
local function begun_anew(text)
  text = ' ' .. text
  for name in string.gmatch('snoozes unhandled expires since progress', '%a+') do
    text = string.gsub(text, ' ' .. name .. '=%S*', '')
  end
  return string.sub(text, 2)
end

for i = 8, #ARGV, edited + 1 do
  if bytes_left <= 0 then break end
  local entry = ARGV[i]
  local stored, status = read_payload(dead_messages, entry), '0'
  local id = string.match(entry, '^(.*):%d+$')
  local _, stop, sent_with, reason_size, error_size, header_size, attribute_size =
    string.find(stored or '', '^%d+ (%d+) %d+ %d+ (%d+) (%d+) (%d+) ?(%d*)\n')
  if id and stop and not seen[entry] then
    if alive[id] or redis.call('HEXISTS', messages, id) == 1 then
      status = '2'
    else
      status, seen[entry], alive[id], entries[#entries + 1] = '1', true, true, entry
      local at = stop + 1 + reason_size + error_size
      local attributes_at = at + header_size
      local payload_at = attributes_at + (tonumber(attribute_size) or 0)
      lives[#lives + 1] = {id = id, retries = retry_count ~= '' and retry_count or sent_with,
        headers = string.sub(stored, at, attributes_at - 1),
        attributes = begun_anew(string.sub(stored, attributes_at, payload_at - 1)),
        payload = edited == '1' and ARGV[i + 1] or string.sub(stored, payload_at)}
    end
  end
  statuses[#statuses + 1] = status
end
begin(meta, slot)
local ids, dues, retry_counts = {}, {}, {}
if #entries > 0 then
  remove_dead_entries(dead, dead_messages, dead_ids, entries)
  for n, life in ipairs(lives) do
    local due = string.format('%.0f', math.floor(now + first + (n - 1) * interval))
    ids[n], dues[n], retry_counts[n] = life.id, due, life.retries
    redis.call('ZADD', pending, due, life.id)
    redis.call('HSET', retries, life.id, life.retries)
    if life.headers ~= '' then redis.call('HSET', headers, life.id, life.headers) end
    if life.attributes ~= '' then redis.call('HSET', attributes, life.id, life.attributes) end
    redis.call('HSET', messages, life.id, life.payload)
  end
  increase(meta, 'redriven', #entries)
  signal(wake)
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'redriven', now, 'ids', ids, 'dues', dues, 'retries', retry_counts)
return reply
