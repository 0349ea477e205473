-- Changes the due time of messages that are not being processed; keeps their attempts and retries.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, garbage set, messages hash, deliveries hash,
--   dead_ids hash, events stream, cold_changes hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per message: id, due (ms from now, or @ms since 1970)
-- Returns: a status per message: 1 rescheduled, 2 running, 3 dead, 4 not in Redis, but if it is in the cold tier it comes
--   back with this time, 0 gone
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, record, leave, signal, log, change
local pending, ranked, throttled, unack, garbage, messages, deliveries, dead_ids, events, cold_changes, meta, wake =
  unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

-- Rounds up to the millisecond, so that nothing is due too early; delay 0 means due now, not a millisecond later.
local time = clock(override) / 1000
local now, at_once = math.ceil(time), math.floor(time)
redis.call('ZCARD', pending)
local logged, schema = unpack(redis.call('HMGET', meta, 'events', 'schema'))
local is_cold = look_at_changes(cold_changes, meta, schema)
redis.call('LLEN', wake)
local function due_text(due)
  return string.byte(due) == 64 and string.sub(due, 2) or string.format('%.0f', due == '0' and at_once or now + due)
end

local statuses, ids, times, dues, records, seen = {}, {}, {}, {}, {}, {}
for i = 4, #ARGV, 2 do
  local id, due = ARGV[i], ARGV[i + 1]
  local status = redis.call('HEXISTS', dead_ids, id) == 1 and '3' or '0'
  if redis.call('HEXISTS', messages, id) == 1 and not seen[id] then
    local record = redis.call('HGET', deliveries, id)
    local state, _, attempts, first, token, consumer = read_in('pending', record or '', 0)
    if state == 'leased' then
      status = '2'
    elseif state == 'garbage' then
      status = '3'
    else
      due = due_text(due)
      status, seen[id], ids[#ids + 1] = '1', true, id
      times[#ids], dues[#dues + 1], dues[#dues + 2] = due, due, id
      if state ~= 'pending' then leave(state, id) end
      if record then
        records[#records + 1], records[#records + 2] = id, write('pending', due, attempts, first, token, consumer)
      end
    end
  elseif is_cold and status == '0' and not seen[id] and change_of(cold_changes, id) ~= '-' then
    status = '4'
    change(id, due_text(due), at_once)
  end
  statuses[#statuses + 1] = status
end
look_at_leaving(ranked, throttled, unack)
begin(meta, slot)
note_changes(cold_changes)
if #ids > 0 then
  depart(pending, ranked, throttled, unack, garbage, meta)
  redis.call('ZADD', pending, unpack(dues))
  if #records > 0 then redis.call('HSET', deliveries, unpack(records)) end
  increase(meta, 'rescheduled', #ids)
  signal_if_first(wake, pending, ids)
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'rescheduled', at_once, 'ids', ids, 'dues', times)
return reply
