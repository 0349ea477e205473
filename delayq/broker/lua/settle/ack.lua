-- Settles messages as done and deletes them. The first receipt of this life wins, even after its lease expired. A
-- successor that waits takes the place of its message.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, running zset, gates zset, garbage set, retries hash,
--   messages hash, deliveries hash, headers hash, attributes hash, errors hash, successors hash, events stream,
--   done zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), outcome (acked, discarded, or missed: discarded because it has expired), then per
--   receipt: id, token
-- Returns: a status for each of the first receipts, as many as the byte budget allows for their attributes and successors:
--   1 settled by it, 0 settled before, dead, or from an earlier life
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, receipt, leave, signal, places, successor, log, done
local pending, ranked, throttled, unack, running, gates, garbage, retries, messages, deliveries, headers, attributes,
  errors, successors, events, done, meta, wake = unpack(KEYS)
local slot, sequence, override, outcome = unpack(ARGV, 1, 4)
local counter = outcome == 'missed' and 'discarded' or outcome
local past, logged, schema, limited = begun(meta, done, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local placed = look_at_places(running, gates, wake, limited)
local waiting = waiting_in(successors, schema, pending, wake)
local ids, statuses, ended, tokens, texts, held, seen, late = {}, {}, {}, {}, {}, {}, {}, false
for i = 5, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
for n, record in ipairs(redis.call('HMGET', deliveries, unpack(ids))) do
  if bytes_left <= 0 then break end
  local id, token = ids[n], ARGV[4 + 2 * n]
  local state, _, _, first, last = read(record or '')
  statuses[n] = '0'
  if wins(state, first, last, token) and not seen[id] then
    statuses[n], seen[id], ended[#ended + 1], tokens[#tokens + 1] = '1', true, id, token
    if some_ask then texts[id] = read_payload(attributes, id) end
    if waiting then inherit(id, read_payload(successors, id)) end
    if state == 'leased' then
      held[#held + 1] = id
    else
      leave(state, id)
      late = true
    end
  end
end
local headed, failed = redis.call('HLEN', headers) > 0, redis.call('HLEN', errors) > 0
local attributed = has_attributes(schema) and redis.call('HLEN', attributes) > 0
if late then
  redis.call('ZCARD', pending)
  look_at_leaving(ranked, throttled, unack)
end
-- The types of messages and retries are not looked at: without their entries the message has ended, and the delivery
-- record, which says so, goes after them. An ack that one of them stops can be repeated once the foreign key is gone.
if #held > 0 then redis.call('ZREM', unack, unpack(held)) end
if #ended > 0 then
  redis.call('HDEL', messages, unpack(ended))
  redis.call('HDEL', retries, unpack(ended))
  if headed then redis.call('HDEL', headers, unpack(ended)) end
  if attributed then redis.call('HDEL', attributes, unpack(ended)) end
  if failed then redis.call('HDEL', errors, unpack(ended)) end
  redis.call('HDEL', deliveries, unpack(ended))
  depart(pending, ranked, throttled, unack, garbage, meta)
  increase(meta, counter, #ended)
  if outcome ~= counter then increase(meta, outcome, #ended) end
  settle(done, now, ended, texts)
  if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end
  if placed then free_places(running, gates, wake, keyed and ended or held, false) end
else
  begin(meta, slot)
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
if outcome ~= counter then log(events, meta, logged, outcome, now, 'ids', ended, 'tokens', tokens) end
log(events, meta, logged, counter, now, 'ids', ended, 'tokens', tokens)
log(events, meta, logged, 'sent', now, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
return reply
