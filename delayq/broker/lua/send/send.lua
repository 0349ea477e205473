-- Stores new messages in pending. An existing message is left unchanged, or replaced if requested and not running. A
-- running one gets a successor instead, if requested. An id that is held after its message has been settled is refused.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, garbage set, retries hash, messages hash,
--   deliveries hash, headers hash, attributes hash, errors hash, successors hash, events stream,
--   done zset, runs hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), replace (0, 1, 2 after what runs, 3 what is not leased and has a successor, 4 new
--   ids), max_length (ids, 0 for none), run ('' for none), stride (4 to 6), then per message: id, due (ms from now, or @ms
--   since 1970), retries, payload[, headers[, attributes]]; `keep=` and names at their end say what a replaced one keeps
-- Returns: per message 1 new, 0 exists, 2 replaced, 3 running, 4 in garbage and to be collected, 5 settled, 6 successor;
--   then the time from which delays count (microseconds since 1970), and for each 0, 3 and 5 its state and a time (ms)
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, attributed, kept, leave, signal, successor, log, done,
--   holder, unique, full, run
local pending, ranked, throttled, unack, garbage, retries, messages, deliveries, headers, attributes, errors, successors, events,
  done, runs, meta, wake = unpack(KEYS)
local slot, sequence, override, replace, max_length, run, stride = unpack(ARGV, 1, 7)
local past, logged, schema, _, sent = begun(meta, done, slot, sequence)
if past then return past end

local ids, now, at_once, millis, micros = {}, send_times(override)
for i = 8, #ARGV, stride do ids[#ids + 1] = ARGV[i] end
redis.call('HLEN', retries)
if replace == '4' then redis.call('HLEN', messages) end
if run ~= '' then redis.call('HLEN', runs) end
local was_settled, payload_of = settled(done, at_once, ids), payloads_of(messages, ids, #ids, 16)
local statuses, holders, seen, new_count, replaced, after, stored_counts, defaults = {}, {}, {}, 0, {}, {}, {}, {}
local dues, retry_counts, payloads, header_texts, attribute_texts, first_due = {}, {}, {}, {}, {}, math.huge
for n, id in ipairs(ids) do
  local at, status, state, attempts, _ = 8 + (n - 1) * stride, '1', 'pending', 0, nil
  if seen[id] then
    status = seen[id] == '5' and '5' or '0'
  elseif replace ~= '4' and payload_of(n) then
    local record = redis.call('HGET', deliveries, id)
    if record then state, _, attempts = read_in('pending', record, 0) end
    status = state == 'garbage' and '4' or replace == '0' and '0' or state ~= 'leased' and '2' or replace == '1' and '3'
      or '6'
  elseif was_settled[n] then
    status = '5'
  end
  if replace == '3' and (status ~= '2' or redis.call('HEXISTS', successors, id) == 0) then status = '0' end
  if status ~= '1' then holders[#holders + 1] = holder_of(pending, deliveries, done, id, status, at_once) end
  seen[id], statuses[n] = seen[id] or status, status
  if status == '1' or status == '2' or status == '6' then
    local due, payload, before = ARGV[at + 1], ARGV[at + 3], status ~= '1' and {id, state, attempts}
    local retry_count, header_text, attribute_text, given = with_kept(ARGV[at + 2], stride > '4' and ARGV[at + 4] or '',
      stride > '5' and ARGV[at + 5] or '', before, retries, headers, attributes, successors)
    due = string.byte(due) == 64 and tonumber(string.sub(due, 2)) or due == '0' and at_once or now + due
    if stride > '5' then note_kinds(attribute_text) end
    if status == '6' then
      after[#after + 1] = id
      after[#after + 1] = successor_record(due, retry_count, header_text, attribute_text, payload)
    else
      if status == '1' then new_count = new_count + 1 else replaced[#replaced + 1] = id end
      if status == '2' and state ~= 'pending' then leave(state, id) end
      dues[#dues + 1], dues[#dues + 2], first_due = due, id, math.min(due, first_due)
      retry_counts[#retry_counts + 1], retry_counts[#retry_counts + 2] = id, retry_count
      local counts = (stores_default(schema) or retry_count ~= DEFAULT_RETRIES) and stored_counts or defaults
      counts[#counts + 1], counts[#counts + 2] = id, retry_count
      payloads[#payloads + 1], payloads[#payloads + 2] = id, payload
      if header_text ~= '' then header_texts[#header_texts + 1], header_texts[#header_texts + 2] = id, header_text end
      if attribute_text ~= '' then
        attribute_texts[#attribute_texts + 1], attribute_texts[#attribute_texts + 2] = id, attribute_text
        note_ask(done, at_once, id, given)
      end
    end
  end
end
local refused = full(messages, max_length, new_count)
if refused then return refused end
if #header_texts > 0 or #replaced > 0 then redis.call('HLEN', headers) end
if #attribute_texts > 0 or #replaced > 0 then redis.call('HLEN', attributes) end
local waiting = (#after > 0 or #replaced > 0 and has_attributes(schema)) and redis.call('HLEN', successors) > 0
if #replaced > 0 then
  look_at_leaving(ranked, throttled, unack)
  redis.call('HLEN', errors)
end
-- Adds before it removes, unlike the others: a full Redis must refuse its first write.
if #dues > 0 then
  enter(pending, wake, dues, first_due)
  if #replaced > 0 then
    depart(pending, ranked, throttled, unack, garbage, meta)
    for _, hash in ipairs({deliveries, headers, attributes, errors}) do redis.call('HDEL', hash, unpack(replaced)) end
    if waiting then redis.call('HDEL', successors, unpack(replaced)) end
  end
  if #defaults > 0 and #replaced > 0 then redis.call('HDEL', retries, unpack(replaced)) end
  if #stored_counts > 0 then redis.call('HSET', retries, unpack(stored_counts)) end
  if #header_texts > 0 then redis.call('HSET', headers, unpack(header_texts)) end
  redis.call('HSET', messages, unpack(payloads))
  if #attribute_texts > 0 then redis.call('HSET', attributes, unpack(attribute_texts)) end
  hold_asked(done, meta, at_once)
end
if #after > 0 then redis.call('HSET', successors, unpack(after)) end
if #after + #attribute_texts > 0 then note_attributes(meta) end
local reply = table.concat(statuses)
if run ~= '' then add_up(runs, run, at_once, reply) end
reply = remember(meta, slot, sequence, millis, reply .. ' ' .. micros .. table.concat(holders),
  unpack(new_count > 0 and {'sent', sum(sent, new_count)} or {}))
log_status(events, meta, logged, 'replaced', at_once, run, dues, retry_counts, seen, '2')
log_status(events, meta, logged, 'sent', at_once, run, dues, retry_counts, seen, '1')
return reply
