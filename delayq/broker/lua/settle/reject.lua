-- Moves leased messages to the dead letter at once, even if retries are left: as many as the byte budget allows. Those
-- that were asked to stop are cancelled. A successor that waits takes the place of its message.
-- KEYS: pending zset, unack zset, running zset, gates zset, retries hash, messages hash, deliveries hash, headers hash,
--   attributes hash, errors hash, successors hash, dead zset, dead_messages hash, dead_ids hash, waited zset,
--   ends stream, events stream, done zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per rejection: id, token, reason, error ('' for the last one)
-- Returns: a status for each of the first rejections: 1 dead or cancelled, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, started, erase, dead, signal, places, successor, ends,
--   log, done
local pending, unack, running, gates, retries, messages, deliveries, headers, attributes, errors, successors, dead,
  dead_messages, dead_ids, waited, ends, events, done, meta, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past, logged, schema, limited = begun(meta, done, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
for _, hash in ipairs({retries, messages, attributes, errors, dead_messages, dead_ids}) do redis.call('HLEN', hash) end
local placed = look_at_places(running, gates, wake, limited)
local waiting = waiting_in(successors, schema, pending, wake)
local tells = is_waited_for(waited, ends, schema)
redis.call('ZCARD', unack)
redis.call('ZCARD', dead)
local statuses, ids, rejected, ended, stopped, texts, missed, tokens = {}, {}, {}, {}, {}, {}, {}, {}
for i = 4, #ARGV, 4 do
  if bytes_left <= 0 then break end
  local id = ARGV[i]
  local state, due, attempts, _, token, consumer = read(redis.call('HGET', deliveries, id) or '')
  local held = state == 'leased' and token == ARGV[i + 1] and not rejected[id]
  local payload = held and read_payload(messages, id)
  statuses[#statuses + 1] = payload and '1' or '0'
  if payload then
    ended[#ended + 1] = id
    local stops = mark_of(consumer) == '*'
    table.insert(stops and stopped or ids, id)
    if ARGV[i + 2] == 'missed' and not stops then missed[#missed + 1], tokens[#tokens + 1] = id, token end
    if waiting then inherit(id, read_payload(successors, id)) end
    rejected[id] = {token = token, attempts = attempts, due = due, reason = ARGV[i + 2], payload = payload,
      error = ARGV[i + 3] ~= '' and ARGV[i + 3] or read_payload(errors, id) or '',
      headers = read_payload(headers, id) or '', attributes = read_payload(attributes, id) or '',
      left = whole(retries_of(retries, {id})[1]) or 0}
    texts[id] = rejected[id].attributes
  end
end
begin(meta, slot)
if #ended > 0 then
  erase(messages, retries, deliveries, headers, attributes, errors, ended)
  redis.call('ZREM', unack, unpack(ended))
  add_dead_entries(dead, dead_messages, dead_ids, now, ids, rejected)
  if #ids > 0 then increase(meta, 'dead', #ids) end
  if #stopped > 0 then increase(meta, 'cancelled', #stopped) end
  if #missed > 0 then increase(meta, 'missed', #missed) end
  settle(done, now, ended, texts)
  if placed then free_places(running, gates, wake, ended, false) end
  if tells then announce(waited, ends, ended) end
  if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'missed', now, 'ids', missed, 'tokens', tokens)
log_deaths(events, meta, logged, now, ids, rejected)
log(events, meta, logged, 'cancelled', now, 'ids', stopped)
log(events, meta, logged, 'sent', now, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
return reply
