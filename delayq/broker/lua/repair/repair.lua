-- Examines messages, and repairs those that are not in the one location that their record names. None is lost: one with
-- a payload but no location becomes due at once, or at the time in its record, and a successor takes the place of one
-- that is gone.
-- KEYS: pending zset, ready list, ranked zset, throttled zset, running zset, gates zset, key_lines zset, unack zset,
--   retry list, garbage set, retries hash, messages hash, deliveries hash, headers hash, attributes hash, errors hash, successors hash,
--   events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), fix (1, or 0 to inspect only), search (1 to search ready and retry, else 0),
--   retries (in place of what is no number), then ids
-- Returns: a status per id: 0 correct, 1 location without payload, 2 payload without location, 3 in a second location,
--   4 remains of no message, 5 retries unreadable, 6 record unreadable, 9 takes a place and does not run, b due or
--   leased until a time that never comes; not searched: 7 correct if in ready, 8 if in retry
-- Re-run: returns the same reply; a call that only inspects is not remembered and runs again.
-- Uses: bytes, clock, numbers, once, schema, record, limit, key, health, leave, erase, signal, places, successor, log
local pending, ready, ranked, throttled, running, gates, key_lines, unack, retry, garbage, retries, messages, deliveries,
  headers, attributes, errors, successors, events, meta, wake = unpack(KEYS)
local slot, sequence, override, fix, search, retry_count = unpack(ARGV, 1, 6)
local past = answered(meta, slot, sequence)
if past then return past end

local now, ids = math.floor(clock(override) / 1000), {}
for i = 7, #ARGV do ids[#ids + 1] = ARGV[i] end
for _, list in ipairs({ready, retry, wake}) do redis.call('LLEN', list) end
for _, hash in ipairs({headers, attributes, errors}) do redis.call('HLEN', hash) end
local logged = logging(meta)
local statuses, seen, defects, gone, extra, unreadable = {}, {}, {}, {}, {{}, {}, {}, {}, {}, {}}, {}
local waiting = waiting_in(successors, '', pending, wake)
local places = {}
look_at_places(running, gates, wake, 'running ')
redis.call('ZCARD', key_lines)
local found = examine(pending, ranked, throttled, running, key_lines, unack, garbage, retries, messages, deliveries, headers,
  attributes, errors, successors, ids)
for n, one in ipairs(found) do
  statuses[n] = '0'
  if one and not seen[one.id] then
    if string.find('78', one.status) and (search == '1' or #one.elsewhere > 0 or one.placed or not one.retry_count) then
      search_list(one.state == 'ready' and ready or retry, one)
    end
    if one.placed then
      places[#places + 1] = one.id
      if one.status == '0' then one.status = '9' end
    end
    statuses[n], seen[one.id] = one.status, true
    if one.status > '0' and one.status ~= '7' and one.status ~= '8' then
      defects[#defects + 1] = one
      for _, location in ipairs(one.elsewhere) do table.insert(extra[location], one.id) end
      if one.unreadable then unreadable[#unreadable + 1] = one.id end
      if one.gone then
        gone[#gone + 1] = one.id
        if waiting then inherit(one.id, read_payload(successors, one.id)) end
      end
    end
  end
end
local reply = table.concat(statuses)
if fix == '0' then return reply end

begin(meta, slot)
if #gone > 0 then
  erase(messages, retries, deliveries, headers, attributes, errors, gone)
  redis.call('HDEL', successors, unpack(gone)) -- those that cannot be read, too
end
if #unreadable > 0 then redis.call('HDEL', deliveries, unpack(unreadable)) end
if #extra[1] > 0 then redis.call('ZREM', pending, unpack(extra[1])) end
if #extra[2] > 0 then redis.call('ZREM', unack, unpack(extra[2])) end
if #extra[3] > 0 then redis.call('SREM', garbage, unpack(extra[3])) end
if #extra[4] > 0 then redis.call('ZREM', ranked, unpack(extra[4])) end
if #extra[6] > 0 then redis.call('ZREM', throttled, unpack(extra[6])) end
local again, times = {}, {}
for _, one in ipairs(defects) do
  if one.gone or (one.status == '2' and one.location == 2) then leave(one.state or 'pending', one.id) end
end
depart(pending, ranked, throttled, unack, garbage, meta)
free_places(running, gates, wake, places, false)
for _, one in ipairs(defects) do
  local id, _, due, attempts, first, token, consumer = one.id, unpack(one.record)
  if one.status == '2' and one.location == 3 then
    redis.call('SADD', garbage, id)
  elseif one.status == '2' or one.never and one.location == 1 then
    local at = string.format('%.0f', math.max(now, one.state and not one.never and due or 0))
    times[#again + 1], again[#again + 1] = at, id
    redis.call('ZADD', pending, at, id)
    if one.state then redis.call('HSET', deliveries, id, write('pending', at, attempts, first, token, consumer)) end
  elseif one.never then
    redis.call('ZADD', unack, now, id) -- whose lease has ended
  end
  if not one.gone and not one.retry_count then redis.call('HSET', retries, id, retry_count) end
end
if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end
if #defects > 0 then increase(meta, 'repaired', #defects) end
remember(meta, slot, sequence, now, reply)
log(events, meta, logged, 'rescheduled', now, 'ids', again, 'dues', times)
log(events, meta, logged, 'sent', now, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
return reply
