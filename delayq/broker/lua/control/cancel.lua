-- Cancels messages that are not being processed, and successors that wait. With `stop`, asks those who process the
-- others to stop, and counts this call, so that they learn of it.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, running zset, gates zset, garbage set, retries hash, messages hash,
--   deliveries hash, headers hash, attributes hash, errors hash, successors hash, dead_ids hash, waited zset,
--   ends stream, events stream, done zset, cold_changes hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), stop (0 or 1), then ids
-- Returns: a status per id: 1 cancelled, 2 running, 3 dead, 4 running or dead, but the successor that waited is
--   cancelled, 5 running and asked to stop, 6 not in Redis, but if it is in the cold tier it does not come back, 0 gone
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, started, leave, erase, signal, places, ends, log, done,
--   change
local pending, ranked, throttled, unack, running, gates, garbage, retries, messages, deliveries, headers, attributes, errors, successors,
  dead_ids, waited, ends, events, done, cold_changes, meta, wake = unpack(KEYS)
local slot, sequence, override, stop = unpack(ARGV, 1, 4)
local past, logged, schema, limited = begun(meta, done, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
redis.call('ZCARD', pending)
for _, hash in ipairs({retries, headers, attributes, errors}) do redis.call('HLEN', hash) end
local waiting = has_attributes(schema) and redis.call('HLEN', successors) > 0
local placed = look_at_places(running, gates, wake, limited) and keyed -- what waits has no other
local tells = is_waited_for(waited, ends, schema)
local is_cold = look_at_changes(cold_changes, meta, schema)
local statuses, cancelled, dropped, followed, told, seen, asked, texts = {}, {}, {}, {}, {}, {}, {}, {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local status = redis.call('HEXISTS', dead_ids, id) == 1 and '3' or is_cold and not seen[id] and '6' or '0'
  if redis.call('HEXISTS', messages, id) == 1 and not seen[id] then
    local record = redis.call('HGET', deliveries, id)
    local state, due, attempts, first, token, consumer = read(record or '')
    state = state or 'pending'
    local is_followed = waiting and not followed[id] and redis.call('HEXISTS', successors, id) == 1
    if is_followed then followed[id], dropped[#dropped + 1] = true, id end
    local stopping = consumer and mark_of(consumer) == '*'
    if state == 'leased' and (stop == '1' or stopping) or state == 'garbage' and stopping then
      status = '5'
      if not stopping then
        asked[#asked + 1], asked[#asked + 2] = id, write(state, due, attempts, first, token, marked(consumer, '*'))
      end
    elseif state == 'leased' then
      status = is_followed and '4' or '2'
    elseif state == 'garbage' then
      status = is_followed and '4' or '3'
    else
      status, seen[id], cancelled[#cancelled + 1] = '1', true, id
      if some_ask then texts[id] = read_payload(attributes, id) end
      leave(state, id)
    end
    if is_followed or status == '1' then told[#told + 1] = id end
  end
  if is_cold and string.find('136', status, 1, true) and change_of(cold_changes, id) ~= '-' then change(id, '-', now) end
  statuses[#statuses + 1] = status
end
look_at_leaving(ranked, throttled, unack)
begin(meta, slot)
note_changes(cold_changes)
if #dropped > 0 then redis.call('HDEL', successors, unpack(dropped)) end
if #cancelled > 0 then
  erase(messages, retries, deliveries, headers, attributes, errors, cancelled)
  depart(pending, ranked, throttled, unack, garbage, meta)
  increase(meta, 'cancelled', #cancelled)
  settle(done, now, cancelled, texts)
  if placed then free_places(running, gates, wake, cancelled, false) end
end
if tells and #told > 0 then announce(waited, ends, told) end
if #asked > 0 then
  redis.call('HSET', deliveries, unpack(asked))
  increase(meta, 'stopping', 1)
  note_schema(meta, false)
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'cancelled', now, 'ids', cancelled)
return reply
