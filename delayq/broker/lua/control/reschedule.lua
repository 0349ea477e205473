-- Changes the due time of messages that are not being processed; keeps their attempts and retries.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, garbage set, messages hash, deliveries hash,
--   dead_ids hash, events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per message: id, due (ms from now, or @ms since 1970)
-- Returns: a status per message: 1 rescheduled, 2 running, 3 dead, 0 gone
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, record, leave, signal, log
local pending, ranked, throttled, unack, garbage, messages, deliveries, dead_ids, events, meta, wake =
  unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

-- Rounds up to the millisecond, so that nothing is due too early; delay 0 means due now, not a millisecond later.
local time = clock(override) / 1000
local now, at_once = math.ceil(time), math.floor(time)
redis.call('ZCARD', pending)
local logged = logging(meta)
redis.call('LLEN', wake)
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
      due = string.byte(due) == 64 and string.sub(due, 2) or string.format('%.0f', due == '0' and at_once or now + due)
      status, seen[id], ids[#ids + 1] = '1', true, id
      times[#ids], dues[#dues + 1], dues[#dues + 2] = due, due, id
      if state ~= 'pending' then leave(state, id) end
      if record then
        records[#records + 1], records[#records + 2] = id, write('pending', due, attempts, first, token, consumer)
      end
    end
  end
  statuses[#statuses + 1] = status
end
look_at_leaving(ranked, throttled, unack)
begin(meta, slot)
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
