-- Settles messages as done whose time to join a group has come, and adds their payloads to the groups: see `group`. A
-- receipt whose lease has expired settles nothing, as the message joins later.
-- KEYS: pending zset, unack zset, running zset, gates zset, retries hash, messages hash, deliveries hash, headers hash,
--   attributes hash, errors hash, successors hash, gathered hash, events stream, done zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), limit (bytes of a batch), then per receipt: id, token; id of the group, quiet (ms),
--   at_most (ms after the first entry of a batch, '' for no limit); retries, headers and attributes of the group; entry
-- Returns: a status for each of the first receipts: 1 settled by it, 0 not leased. The rest is left for another call if the
--   byte budget is spent, or if one message is the group of another
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, attributed, signal, places, successor, gathered,
--   log, group, regrouped, done
local pending, unack, running, gates, retries, messages, deliveries, headers, attributes, errors, successors, gathered, events,
  done, meta, wake = unpack(KEYS)
local slot, sequence, override, limit = unpack(ARGV, 1, 4)
local past, logged, schema, limited = begun(meta, done, slot, sequence)
if past then return past end

local now, at_once, millis, micros = send_times(override)
local since = string.format('%.0f', at_once)
local placed = look_at_places(running, gates, wake, limited)
local waiting = waiting_in(successors, schema, pending, wake)
local asked, statuses, ended, tokens, texts, seen, following = {}, {}, {}, {}, {}, {}, {}
for i = 5, #ARGV, 9 do asked[#asked + 1] = ARGV[i] end
for n, record in ipairs(redis.call('HMGET', deliveries, unpack(asked))) do
  local id, token, group, quiet, at_most, retry_count, header_text, text, entry = unpack(ARGV, 9 * n - 4, 9 * n + 4)
  if bytes_left <= 0 or seen[group] or group_by_id[id] then break end
  local state, _, _, _, last = read(record or '')
  statuses[n] = '0'
  if state == 'leased' and last == token and not seen[id] then
    statuses[n], seen[id], ended[#ended + 1], tokens[#tokens + 1] = '1', true, id, token
    if some_ask then texts[id] = read_payload(attributes, id) end
    following[#ended] = waiting and read_payload(successors, id)
    local one = group_for(messages, attributes, successors, group, retry_count, header_text, text, micros, limit)
    gather(one, entry, since, string.format('%.0f', now + quiet), at_most)
  end
end
for n, id in ipairs(ended) do inherit(id, following[n]) end
for _, zset in ipairs({pending, unack}) do redis.call('ZCARD', zset) end
for _, hash in ipairs({retries, messages, headers, errors}) do redis.call('HLEN', hash) end
redis.call('LLEN', wake)
look_at_groups(retries, headers, successors, gathered)
-- Removes before it adds, as a settlement does: it must work when Redis is full.
if #ended > 0 then
  redis.call('ZREM', unack, unpack(ended))
  for _, hash in ipairs({messages, retries, headers, attributes, errors, deliveries}) do redis.call('HDEL', hash, unpack(ended)) end
  increase(meta, 'acked', #ended)
  settle(done, at_once, ended, texts)
  if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end
  store_groups(pending, retries, messages, headers, attributes, successors, gathered, meta, wake)
  if placed then free_places(running, gates, wake, ended, false) end
else
  begin(meta, slot)
end
local reply = remember(meta, slot, sequence, millis, table.concat(statuses))
log(events, meta, logged, 'acked', at_once, 'ids', ended, 'tokens', tokens)
log(events, meta, logged, 'sent', at_once, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
log_groups(events, meta, logged, at_once)
return reply
