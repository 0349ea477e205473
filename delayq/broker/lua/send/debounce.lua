-- Stores one message of a burst, due a quiet time from now, in the place of the one with its id that waits: the last
-- wins, at the latest a time after the first. Beside a running message it waits as its successor, in a burst of its
-- own. An id that is held after its message has been settled is refused.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, garbage set, retries hash, messages hash, deliveries
--   hash, headers hash, attributes hash, errors hash, successors hash, events stream, done zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), max_length (ids, 0 for none), quiet (ms), at_most (ms after the first of the
--   burst, '' for no limit), id, retries, payload, headers, attributes
-- Returns: "status due": as `send`, 1 new, 2 replaced, 4 in garbage and to be collected, 5 settled, 6 successor; then
--   the due time (ms) of 1, 2 and 6, with "unstarted" for a successor of what has not started, or who holds the id
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, attributed, started, leave, signal, successor,
--   follower, log, done, holder, full
local pending, ranked, throttled, unack, garbage, retries, messages, deliveries, headers, attributes, errors, successors, events,
  done, meta, wake = unpack(KEYS)
local slot, sequence, override, max_length, quiet, at_most, id, retry_count, payload, header_text, attribute_text =
  unpack(ARGV)
local past, logged, schema = begun(meta, done, slot, sequence)
if past then return past end

local now, at_once, millis = send_times(override)
local status, state, attempts, consumer, earlier, _ = '1', 'pending', '0', '-', nil, nil
if redis.call('HEXISTS', messages, id) == 1 then
  local record = redis.call('HGET', deliveries, id)
  if record then state, _, attempts, _, _, consumer = read_in('pending', record, 0) end
  status = state == 'garbage' and '4' or state == 'leased' and '6' or '2'
elseif settled(done, at_once, {id})[1] then
  status = '5'
end
if status == '4' or status == '5' then
  local holder = status == '5' and holder_of(pending, deliveries, done, id, status, at_once) or ''
  return remember(meta, slot, sequence, millis, status .. holder)
end

-- A burst is what waits and no callback has begun; what failed, or runs, belongs to an earlier one.
if status == '6' then
  earlier = attributes_in(read_payload(successors, id))
elseif status == '2' and attempts == '0' then
  earlier = read_payload(attributes, id)
end
local since = tonumber(string.match(earlier or '', 'since=(%d+)')) or at_once
local due = math.min(now + quiet, at_most ~= '' and since + at_most or math.huge)
attribute_text = string.format('%s%ssince=%.0f', attribute_text, attribute_text ~= '' and ' ' or '', since)
local refused = status == '1' and full(messages, max_length, 1)
if refused then return refused end
for _, hash in ipairs({retries, headers, attributes, errors, successors}) do redis.call('HLEN', hash) end
if status == '2' and state ~= 'pending' then leave(state, id) end
look_at_leaving(ranked, throttled, unack)
note_kinds(attribute_text)

-- Adds before it removes, as a send does: a full Redis must refuse its first write.
if status == '6' then
  redis.call('HSET', successors, id, successor_record(due, retry_count, header_text, attribute_text, payload))
else
  local dues = {due, id}
  enter(pending, wake, dues, due)
  if status == '2' then
    depart(pending, ranked, throttled, unack, garbage, meta)
    for _, hash in ipairs({deliveries, headers, attributes, errors, successors}) do redis.call('HDEL', hash, id) end
  end
  redis.call('HSET', retries, id, retry_count)
  if header_text ~= '' then redis.call('HSET', headers, id, header_text) end
  redis.call('HSET', messages, id, payload)
  redis.call('HSET', attributes, id, attribute_text)
  if status == '1' then increase(meta, 'sent', 1) end
end
note_attributes(meta)
local due_text, mark = string.format('%.0f', due), mark_of(consumer)
local unstarted = status == '6' and (mark == '?' or mark == '!') and ' unstarted' or ''
local reply = remember(meta, slot, sequence, millis, status .. ' ' .. due_text .. unstarted)
if status ~= '6' then
  log(events, meta, logged, status == '1' and 'sent' or 'replaced', at_once, 'ids', {id}, 'dues', {due_text}, 'retries',
    {retry_count})
end
return reply
