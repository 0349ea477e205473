-- Settles messages with retention as done: what `ack` does, and keeps a record of each with its result. The first
-- receipt of this life wins, even after its lease expired. The id is free at once.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, running zset, gates zset, garbage set, retries hash,
--   messages hash, deliveries hash, headers hash, attributes hash, errors hash, successors hash, completed zset,
--   results hash, waited zset, ends stream, events stream, done zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per receipt: id, token, retention (ms), outcome (returned, nothing, unkept
--   or discarded), attributes, note (why there is no result; missed if it has expired), result
-- Returns: as `ack`
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, receipt, erase, leave, signal, places, successor, ends,
--   log, done
local pending, ranked, throttled, unack, running, gates, garbage, retries, messages, deliveries, headers, attributes,
  errors, successors, completed, results, waited, ends, events, done, meta, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past, logged, schema, limited = begun(meta, done, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local placed = look_at_places(running, gates, wake, limited)
local waiting = waiting_in(successors, schema, pending, wake)
local tells = is_waited_for(waited, ends, schema)
for _, hash in ipairs({messages, retries, headers, attributes, errors, results}) do redis.call('HLEN', hash) end
for _, zset in ipairs({pending, completed}) do redis.call('ZCARD', zset) end
local statuses, ended, untils, last_until, kept, texts, seen = {}, {}, {}, now, {}, {}, {}
local of_kind = {acked = {ids = {}, tokens = {}}, discarded = {ids = {}, tokens = {}}, missed = {ids = {}, tokens = {}}}

local function count(kind, id, token)
  kind.ids[#kind.ids + 1], kind.tokens[#kind.tokens + 1] = id, token
end

for i = 4, #ARGV, 7 do
  if bytes_left <= 0 then break end
  local id, token, retention, outcome, attribute_text, note, result = unpack(ARGV, i, i + 6)
  local state, due, attempts, first, last = read(redis.call('HGET', deliveries, id) or '')
  local settles = wins(state, first, last, token) and not seen[id]
  statuses[#statuses + 1] = settles and '1' or '0'
  if settles then
    local n = #ended + 1
    seen[id], ended[n] = true, id
    count(of_kind[outcome == 'discarded' and outcome or 'acked'], id, token)
    if outcome == 'discarded' and note == 'missed' then count(of_kind.missed, id, token) end
    untils[2 * n - 1], untils[2 * n] = string.format('%.0f', now + retention), id
    last_until = math.max(last_until, now + retention)
    kept[2 * n - 1], kept[2 * n] = id, string.format('%s %s %s %.0f %s %d %d\n', outcome, attempts, due, now, token,
      #attribute_text, #note) .. attribute_text .. note .. result
    if some_ask then texts[id] = read_payload(attributes, id) end
    if waiting then inherit(id, read_payload(successors, id)) end
    leave(state, id)
  end
end
look_at_leaving(ranked, throttled, unack)
begin(meta, slot)
if #ended > 0 then
  erase(messages, retries, deliveries, headers, attributes, errors, ended)
  depart(pending, ranked, throttled, unack, garbage, meta)
  redis.call('ZADD', completed, unpack(untils))
  redis.call('HSET', results, unpack(kept))
  let_last(last_until, now, 0, completed, results)
  for counter, kind in pairs(of_kind) do
    if #kind.ids > 0 then increase(meta, counter, #kind.ids) end
  end
  settle(done, now, ended, texts)
  if placed then free_places(running, gates, wake, ended, false) end
  if tells then announce(waited, ends, ended) end
  if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'acked', now, 'ids', of_kind.acked.ids, 'tokens', of_kind.acked.tokens)
log(events, meta, logged, 'missed', now, 'ids', of_kind.missed.ids, 'tokens', of_kind.missed.tokens)
log(events, meta, logged, 'discarded', now, 'ids', of_kind.discarded.ids, 'tokens', of_kind.discarded.tokens)
log(events, meta, logged, 'sent', now, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
return reply
