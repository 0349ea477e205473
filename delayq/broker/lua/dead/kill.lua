-- Moves messages that wait to the dead letter by hand, as many as the byte budget allows. One that was never delivered
-- gets a token, so that its entry differs from those of other lives. A successor that waits takes the place of its message.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, running zset, gates zset, garbage set, retries hash, messages hash,
--   deliveries hash, headers hash, attributes hash, errors hash, successors hash, dead zset, dead_messages hash,
--   dead_ids hash, waited zset, ends stream, events stream, done zset, meta hash, wake list,
--   gathered hash
-- ARGV: slot, sequence, now (ms or ''), then ids
-- Returns: a status for each of the first ids: 1 killed, 2 running, 3 dead or about to be, 0 gone or stopping
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, started, leave, erase, dead, signal, places, successor, ends,
--   gathered, parted, log, done
local pending, ranked, throttled, unack, running, gates, garbage, retries, messages, deliveries, headers, attributes, errors, successors,
  dead, dead_messages, dead_ids, waited, ends, events, done, meta, wake, gathered = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past, logged, schema, limited = begun(meta, done, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
redis.call('ZCARD', dead)
redis.call('HLEN', dead_messages)
local placed = look_at_places(running, gates, wake, limited) and keyed -- what waits has no other
local waiting = waiting_in(successors, schema, pending, wake)
local tells = is_waited_for(waited, ends, schema)
local token, drawn = math.max((whole(redis.call('HGET', meta, 'token')) or 0) + 1, time), false
local statuses, killed, deaths, texts = {}, {}, {}, {}
for i = 4, #ARGV do
  if bytes_left <= 0 then break end
  local id = ARGV[i]
  local status = (deaths[id] or redis.call('HEXISTS', dead_ids, id) == 1) and '3' or '0'
  local state, due, attempts, _, last, consumer = read(redis.call('HGET', deliveries, id) or '')
  if not deaths[id] and redis.call('HEXISTS', messages, id) == 1 then
    if state == 'leased' then
      status = '2'
    elseif state == 'garbage' then
      status = mark_of(consumer) == '*' and '0' or '3'
    else
      local score = redis.call('ZSCORE', pending, id)
      due = score and time_of(score) or due or now
      if (last or '0') == '0' then
        last = string.format('%.0f', token)
        token, drawn = token + 1, last
      end
      status, killed[#killed + 1] = '1', id
      leave(state or 'pending', id)
      if waiting then inherit(id, read_payload(successors, id)) end
      local text, payload = read_payload(attributes, id) or '', read_payload(messages, id)
      local one, left = group_of(text), retries_of(retries, {id})[1]
      if one then
        redis.call('LLEN', wake)
        text, payload = closed_text(one), take_batch(gathered, id, one)
        if one.count > 0 then inherit(id, rest_of(one, now, left, read_payload(headers, id) or '')) end
      end
      -- Nothing runs, so the attempts are complete: the retry that an entry takes off for the last one is added.
      deaths[id] = {token = last, attempts = attempts or '0', due = due, left = (whole(left) or 0) + 1,
        reason = 'killed', error = read_payload(errors, id) or '', headers = read_payload(headers, id) or '',
        attributes = text, payload = payload}
      texts[id] = deaths[id].attributes
    end
  end
  statuses[#statuses + 1] = status
end
look_at_leaving(ranked, throttled, unack)
begin(meta, slot)
if #killed > 0 then
  delete_taken(gathered)
  erase(messages, retries, deliveries, headers, attributes, errors, killed)
  depart(pending, ranked, throttled, unack, garbage, meta)
  add_dead_entries(dead, dead_messages, dead_ids, now, killed, deaths)
  increase(meta, 'dead', #killed)
  if drawn then redis.call('HSET', meta, 'token', drawn) end
  settle(done, now, killed, texts)
  if placed then free_places(running, gates, wake, killed, false) end
  if tells then announce(waited, ends, killed) end
  if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log_deaths(events, meta, logged, now, killed, deaths)
log(events, meta, logged, 'sent', now, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
return reply
