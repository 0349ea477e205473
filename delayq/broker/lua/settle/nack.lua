-- Schedules leased messages for a retry after a delay, with one retry less; moves them to garbage if none is left, and
-- uncharged if they were asked to stop.
-- KEYS: unack zset, running zset, gates zset, garbage set, retries hash, deliveries hash, attributes hash, errors hash,
--   events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per failure: id, token, delay (ms), error ('' for none), span of the attempt (''
--   if none was recorded), which becomes the first attribute
-- Returns: a status per failure: 1 will be retried, 2 no retries left or asked to stop, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, attributed, record, started, signal, places, log
local unack, running, gates, garbage, retries, deliveries, attributes, errors, events, meta,
  wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local time = clock(override) / 1000
local now = math.ceil(time)
local ids = {}
for i = 4, #ARGV, 5 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', deliveries, unpack(ids))
local known_retries = retries_of(retries, ids)
redis.call('ZCARD', unack)
redis.call('SCARD', garbage)
redis.call('HLEN', errors)
local logged, limited = unpack(redis.call('HMGET', meta, 'events', 'limited'))
local placed = look_at_places(running, gates, wake, limited)
redis.call('LLEN', wake)
local statuses, seen, again, due_again, spent = {}, {}, {}, {}, {}
local records, retry_counts, causes = {}, {}, {}
local nacked, tokens, left_after, texts, spans = {}, {}, {}, {}, {}
for n, id in ipairs(ids) do
  local at = 5 * n - 1
  local state, due, attempts, first, token, consumer = read(known[n] or '')
  statuses[n] = '0'
  local held = state == 'leased' and token == ARGV[at + 1] and not seen[id]
  if held and mark_of(consumer) == '*' then
    statuses[n], seen[id], spent[#spent + 1] = '2', true, id
    records[#records + 1], records[#records + 2] = id, write('garbage', due, attempts, first, token, consumer)
  elseif held then
    local left, to = whole(known_retries[n]) or 0, 'backoff'
    seen[id], nacked[#nacked + 1], tokens[#tokens + 1], texts[#texts + 1] = true, id, token, ARGV[at + 3]
    left_after[#nacked] = left > 0 and left - 1
    if left > 0 then
      statuses[n], again[#again + 1] = '1', id
      due_again[#due_again + 1], due_again[#due_again + 2] = now + ARGV[at + 2], id
      retry_counts[#retry_counts + 1], retry_counts[#retry_counts + 2] = id, left - 1
    else
      statuses[n], spent[#spent + 1], to = '2', id, 'garbage'
    end
    records[#records + 1], records[#records + 2] = id, write(to, due, attempts, first, token, unmarked(consumer))
    if ARGV[at + 3] ~= '' then causes[#causes + 1], causes[#causes + 2] = id, ARGV[at + 3] end
    if ARGV[at + 4] ~= '' and bytes_left > 0 then -- without it, the next attempt is not linked to this one
      local others = string.gsub(' ' .. (read_payload(attributes, id) or ''), ' span=%S*', '')
      spans[#spans + 1], spans[#spans + 2] = id, 'span=' .. ARGV[at + 4] .. string.gsub(others, '^ $', '')
    end
  end
end
begin(meta, slot)
if #spent > 0 then
  redis.call('ZREM', unack, unpack(spent))
  redis.call('SADD', garbage, unpack(spent))
end
if #again > 0 then
  redis.call('ZADD', unack, unpack(due_again))
  redis.call('HSET', retries, unpack(retry_counts))
  increase(meta, 'backoffs', #again)
  signal_if_first(wake, unack, again)
end
if #records > 0 then redis.call('HSET', deliveries, unpack(records)) end
if #nacked > 0 then increase(meta, 'nacked', #nacked) end
if placed then
  free_places(running, gates, wake, spent, false)
  free_places(running, gates, wake, again, true)
end
if #causes > 0 then redis.call('HSET', errors, unpack(causes)) end
if #spans > 0 then
  redis.call('HSET', attributes, unpack(spans))
  note_attributes(meta)
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'nacked', math.floor(time), 'ids', nacked, 'tokens', tokens, 'retries', left_after,
  'errors', texts)
return reply
