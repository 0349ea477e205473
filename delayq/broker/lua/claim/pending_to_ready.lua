-- Moves due ids from pending to the ready list, earliest first, those with a priority to ranked, and reports when the
-- next work is due. The entries that a message has gathered become its payload.
-- KEYS: pending zset, ready list, ranked zset, unack zset, retry list, garbage set, deliveries hash, attributes hash,
--   schedules zset, throttled zset, gates zset, events stream, meta hash, retries hash, messages hash, headers hash,
--   successors hash, gathered hash
-- ARGV: slot, sequence, now (ms or ''), limit (ids)
-- Returns: "moved next_due next_deadline waiting garbage now next_schedule paused ranks stopping next_gate": ids; ms or
--   -1; ms or -1; ids in ready, ranked and retry that are not stale, 0 in a pause or while the limit of the queue is used
--   up; ids; ms; ms or -1; the end of a pause (ms, 0 for no end), -1 if there is none or nothing waits or is leased; 1 if
--   messages have priorities or limits, which is told only while something waits or is leased; how many calls have asked
--   messages to stop, which is told only while something is leased; when something throttled may start (ms or -1). The
--   last three are left out if there is nothing to tell
-- Re-run: returns the same reply; a call that moved nothing, or finds the queue empty, runs again.
-- Uses: bytes, clock, numbers, once, schema, record, living, rank, pause, successor, gathered, parted, batches, log
local pending, ready, ranked, unack, retry, garbage, deliveries, attributes, schedules, throttled, gates, events,
  meta, retries, messages, headers, successors, gathered = unpack(KEYS)
local slot, sequence, override, limit = unpack(ARGV, 1, 4)
local now = math.floor(clock(override) / 1000)
-- Most calls find little to do: keys that do not exist are not read.
local existing = redis.call('EXISTS', pending, ready, ranked, unack, retry, garbage, schedules, throttled)
if existing == 0 then return string.format('0 -1 -1 0 0 %.0f -1 -1', now) end
local past = answered(meta, slot, sequence)
if past then return past end

local head, due = redis.call('ZRANGE', pending, 0, 1, 'WITHSCORES'), {}
if head[4] and tonumber(head[4]) <= now then
  due = redis.call('ZRANGEBYSCORE', pending, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
elseif head[2] and tonumber(head[2]) <= now then
  due = {head[1], head[2]}
end
local settings = (existing > 1 or #due > 0 or #head == 0)
  and redis.call('HMGET', meta, 'events', 'stale_ready', 'stale_retry', 'paused', 'priority_step', 'stopping', 'limited')
local step = settings and settings[5]
local moved, texts = take_batches(gathered, retries, messages, headers, attributes, successors, step, due, now)
local next_due = head[2 * moved + 2] or moved > 1 and redis.call('ZRANGE', pending, moved, moved, 'WITHSCORES')[2]
local next_deadline, waiting, spent, next_schedule, paused, told = nil, moved, 0, nil, nil, ''
if existing > 1 or #head == 0 then
  next_deadline = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2]
  waiting, spent = waiting + living_in(ready, settings[2]) + living_in(retry, settings[3]), redis.call('SCARD', garbage)
  next_schedule = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2]
end
if settings then
  waiting = waiting + (step and redis.call('ZCARD', ranked) or 0)
  local limited = settings[7]
  local closed = limited and redis.call('ZSCORE', gates, 0)
  local gate = limited and (closed or redis.call('ZRANGE', gates, 0, 0, 'WITHSCORES')[2])
  if waiting > 0 or next_deadline or gate then
    paused = pause_end(settings[4], now)
    local stopping = next_deadline and whole(settings[6])
    local next_gate = gate and gate ~= 'inf' and not paused and time_of(gate) or '-1'
    if step or stopping or limited then
      told = string.format(' %d %s %s', (step or limited) and 1 or 0, stopping or '0', next_gate)
    end
  end
  if paused or closed and tonumber(closed) > now then waiting = 0 end
end
local reply = string.format('%d %.0f %.0f %d %d %.0f %.0f %.0f', moved, next_due or -1, next_deadline or -1, waiting,
  spent, now, next_schedule or -1, paused or -1) .. told
if moved == 0 then return reply end

local ids, dues, records, listed, ranks = {}, {}, {}, {}, {}
local find, last, last_due, last_record = string.find, nil, nil, nil
for i = 1, moved do
  local at = due[2 * i]
  if at ~= last then last, last_due = at, find(at, '%D') and time_of(at) or at end -- many have the same
  ids[i], dues[i] = due[2 * i - 1], last_due
end
local known = redis.call('HMGET', deliveries, unpack(ids))
last = nil
for i, id in ipairs(ids) do
  local at, rank, state = dues[i], texts[i] and rank_text(texts[i], dues[i], step), 'ready'
  if rank then
    state, ranks[#ranks + 1], ranks[#ranks + 2] = 'ranked', rank, id
  else
    listed[#listed + 1] = id
  end
  records[2 * i - 1] = id
  if known[i] then
    local _, _, attempts, first, token, consumer = read_in('pending', known[i], at)
    records[2 * i] = write(state, at, attempts, first, token, consumer)
  else
    if last ~= state or last_due ~= at then last, last_due, last_record = state, at, write(state, at, '0', '0', '0', '-') end
    records[2 * i] = last_record
  end
end
redis.call('ZREMRANGEBYRANK', pending, 0, moved - 1)
store_batches(messages, attributes, successors, gathered)
redis.call('HSET', deliveries, unpack(records))
if #listed > 0 then redis.call('RPUSH', ready, unpack(listed)) end
if #ranks > 0 then redis.call('ZADD', ranked, unpack(ranks)) end
remember(meta, slot, sequence, now, reply)
log(events, meta, settings[1], 'promoted', now, 'ids', ids, 'dues', dues)
return reply
