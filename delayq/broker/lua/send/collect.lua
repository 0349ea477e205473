-- Adds entries to groups, each to the message with its id that gathers. Beside one that gathers no more, since it waits to
-- be delivered or runs, it is added to the successor, so that one batch of a group is delivered at a time. A batch that
-- is full is due. The first entry of a message decides its retries, headers and attributes.
-- KEYS: pending zset, retries hash, messages hash, deliveries hash, headers hash, attributes hash, successors hash,
--   gathered hash, events stream, done zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), max_length (ids, 0 for none), quiet (ms), at_most (ms after the first entry of a
--   batch, '' for no limit), limit (bytes of a batch), then per entry: id, retries, entry (a comma and JSON, or a
--   netstring), headers, attributes (which say how many entries a batch has)
-- Returns: a list of "status due" with commas between: 1 new, 7 added to what gathers, 6 to the successor, 4 in garbage and
--   to be collected; then the due time (ms) of the batch
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, attributed, signal, successor,
--   follower, gathered, log, group, done, full
local pending, retries, messages, deliveries, headers, attributes, successors, gathered, events, done, meta, wake = unpack(KEYS)
local slot, sequence, override, max_length, quiet, at_most, limit = unpack(ARGV, 1, 7)
-- The access rights of consumers do not include this command: who only consumes sends nothing.
redis.call('HEXISTS', messages, ARGV[8])
local past, logged, schema = begun(meta, done, slot, sequence)
if past then return past end
local now, at_once, millis, micros = send_times(override)
local paused, groups, order, found, entries, new_count, begins =
  string.format('%.0f', now + quiet), {}, {}, {}, {}, 0, false
at_once = string.format('%.0f', at_once)

-- Returns the group of an id: what gathers, else the successor of what does not, else a new one.
local function group_for(id, retry_count, header_text, text)
  local one = group_of(read_payload(attributes, id))
  if one then
    one.status = '7'
  elseif redis.call('HEXISTS', messages, id) == 0 then
    one, new_count = new_group(text, micros, limit), new_count + 1
    one.status = '1'
  elseif read(redis.call('HGET', deliveries, id) or '') == 'garbage' then
    return {status = '4', count = 0}
  else
    inherit(id, read_payload(successors, id))
    local n = #heirs.ids
    one = heirs.ids[n] == id and group_of(heirs.attributes[n])
    if one then retry_count, header_text, one.before = heirs.retries[n], heirs.headers[n], heirs.dues[n] end
    one = one or new_group(text, micros, limit)
    one.status = '6'
  end
  begins, one.was_due = begins or one.count == 0, one.count > one.last or one.last >= one.most
  one.id, one.retries, one.headers, order[#order + 1] = id, retry_count, header_text, one
  return one
end
for i = 8, #ARGV, 5 do
  local id, retry_count, entry, header_text, text = unpack(ARGV, i, i + 4)
  local one = groups[id] or group_for(id, retry_count, header_text, text)
  groups[id] = one
  local status, n = one.status == '1' and one.count > 0 and '7' or one.status, #entries
  if status ~= '4' then
    one.next_due = add_entry(one, #entry, at_once, paused, at_most)
    entries[n + 1], entries[n + 2] = entry_field(id, one.series, one.first + one.count - 1), entry
  end
  found[#found + 1] = status == '4' and status or status .. ' ' .. one.due
end
local refused = full(messages, max_length, new_count)
if refused then return refused end
redis.call('HLEN', gathered)
if begins then
  for _, hash in ipairs({retries, headers, successors}) do redis.call('HLEN', hash) end
end
local dues, first_due, texts, after = {}, math.huge, {}, {}
for _, one in ipairs(order) do
  local id, text = one.id, group_text(one)
  if one.status == '6' then
    local due = one.was_due and one.before or one.next_due
    after[#after + 1], after[#after + 2] = id, successor_record(due, one.retries, one.headers, text, '')
  else
    texts[#texts + 1], texts[#texts + 2] = id, text
    if not one.was_due then
      dues[#dues + 1], dues[#dues + 2], first_due = one.next_due, id, math.min(first_due, one.next_due)
    end
  end
end
-- Adds before it removes, as a send does: a full Redis must refuse its first write.
if #dues > 0 then enter(pending, wake, dues, first_due) end
if #entries > 0 then redis.call('HSET', gathered, unpack(entries)) end
if #texts > 0 then redis.call('HSET', attributes, unpack(texts)) end
if #after > 0 then redis.call('HSET', successors, unpack(after)) end
for _, one in ipairs(new_count > 0 and order or {}) do
  if one.status == '1' then
    redis.call('HSET', retries, one.id, one.retries)
    if one.headers ~= '' then redis.call('HSET', headers, one.id, one.headers) end
    redis.call('HSET', messages, one.id, '')
  end
end
if new_count > 0 then increase(meta, 'sent', new_count) end
if begins then
  prioritized = true -- what is due is promoted first then, and what it has gathered becomes its payload
  note_attributes(meta)
  delete_stray(gathered, attributes, successors)
end
local news, times, left = told_of(logged and order or {}, '1')
local changed, moved, left_too = told_of(logged and order or {}, '7')
local reply = remember(meta, slot, sequence, millis, table.concat(found, ','))
log(events, meta, logged, 'sent', at_once, 'ids', news, 'dues', times, 'retries', left)
log(events, meta, logged, 'replaced', at_once, 'ids', changed, 'dues', moved, 'retries', left_too)
return reply
