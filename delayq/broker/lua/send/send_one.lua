-- Stores one message in pending: what `send` does for one without its options, at a lower cost. An existing message is
-- left unchanged. An id that is held after its message has been settled is refused. The runs are a key only for the
-- rights: whoever may not write them does not send.
-- KEYS: pending zset, retries hash, messages hash, deliveries hash, headers hash, attributes hash, events stream,
--   done zset, runs hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), id, due (ms from now, or @ms since 1970), retries, payload, headers,
--   attributes ('' for none)
-- Returns: as `send`: 1 new, 0 exists, 4 in garbage and to be collected, 5 settled; then the time, and who holds the id
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, schema, lasting, attributed, signal, log, done, holder, unique
local pending, retries, messages, deliveries, headers, attributes, events, done, runs, meta, wake = unpack(KEYS)
local slot, sequence, override, id, due, retry_count, payload, header_text, attribute_text = unpack(ARGV, 1, 9)
local past, logged, schema, _, sent = begun(meta, done, slot, sequence)
if past then return past end

local now, at_once, millis, micros = send_times(override)
local status = '1'
if settled(done, at_once, {id})[1] and redis.call('HEXISTS', messages, id) == 0 then status = '5' end
if status == '1' then
  due = string.byte(due) == 64 and string.sub(due, 2) or string.format('%.0f', due == '0' and at_once or now + due)
  local wakes = is_to_wake(pending, wake, tonumber(due))
  if header_text ~= '' then redis.call('HLEN', headers) end
  if attribute_text ~= '' then
    redis.call('HLEN', attributes)
    note_ask(done, at_once, id, attribute_text)
  end
  -- The first write needs memory: a full Redis must refuse it.
  if redis.call('HSETNX', messages, id, payload) == 1 then
    local counted = (stores_default(schema) or retry_count ~= DEFAULT_RETRIES) and redis.pcall('HSET', retries, id, retry_count)
    if type(counted) == 'table' then -- the type is wrong: it is as if nothing had been written
      redis.call('HDEL', messages, id)
      return counted
    end
    redis.call('ZADD', pending, due, id)
    if header_text ~= '' then redis.call('HSET', headers, id, header_text) end
    if attribute_text ~= '' then
      redis.call('HSET', attributes, id, attribute_text)
      note_kinds(attribute_text)
      note_attributes(meta)
      hold_asked(done, meta, at_once)
    end
    if wakes then redis.call('RPUSH', wake, '1') end
  else
    local record = redis.call('HGET', deliveries, id)
    status = record and string.match(record, '^%a+') == 'garbage' and '4' or '0'
  end
end
local holder = status == '1' and '' or holder_of(pending, deliveries, done, id, status, at_once)
local reply = status .. ' ' .. micros .. holder
if status ~= '1' then
  remember(meta, slot, sequence, millis, reply)
else
  remember(meta, slot, sequence, millis, reply, 'sent', sum(sent, 1))
  log(events, meta, logged, 'sent', at_once, 'ids', {id}, 'dues', {due}, 'retries', {retry_count})
end
return reply
