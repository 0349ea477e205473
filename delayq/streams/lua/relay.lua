-- Moves due messages of a delay queue, with all their fields, into a stream. For the queue they are delivered and done,
-- and a successor that waits takes the place of its message.
-- KEYS: pending zset, ready list, unack zset, retry list, garbage set, retries hash, messages hash, deliveries hash,
--   headers hash, attributes hash, errors hash, successors hash, schedules zset, events stream, done zset, meta hash,
--   replies hash, wake list, stream stream
-- ARGV: slot, sequence, now (ms or ''), limit (ids), consumer
-- Returns: "moved next_due next_deadline waiting garbage now next_schedule": ids; ms or -1; ms or -1; entries left in
--   ready and retry; ids; ms; ms or -1
-- Re-run: returns the same reply; a call that moved nothing was not remembered and executes again.
-- Uses: bytes, clock, once, record, stale, erase, signal, successor, log, done
local pending, ready, unack, retry, garbage, retries, messages, deliveries, headers, attributes, errors,
  successors, schedules, events, done, meta, replies, wake, stream = unpack(KEYS)
local slot, sequence, override, limit, consumer = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local time = clock(override)
local now, limit = math.floor(time / 1000), tonumber(limit)
local counters = redis.call('HMGET', meta, 'token', 'stale_ready', 'stale_retry')
local logged, window, schema = switched(meta, done)
local waiting = waiting_in(successors, schema, pending, wake)
local token = math.max((counters[1] or 0) + 1, time)
local ids, tokens, dues, attempts, retries_left, rows, erased, seen = {}, {}, {}, {}, {}, {}, {}, {}
local promoted, promoted_dues, scanned, stale = {}, {}, {ready = 0, retry = 0}, {ready = 0, retry = 0}

local function is_full() return #ids >= limit or bytes_left <= 0 end
local function add_field(row, name, text) if text then row[#row + 1], row[#row + 2] = name, text end end

local function add(id, due, attempt)
  local payload = read_payload(messages, id)
  seen[id] = true
  if not payload then erased[#erased + 1] = id return end
  local n = #ids + 1
  ids[n], dues[n], attempts[n] = id, due, string.format('%d', attempt + 1)
  tokens[n], retries_left[n] = string.format('%.0f', token), redis.call('HGET', retries, id) or '0'
  rows[n] = {'id', id, 'payload', payload, 'retries', retries_left[n], 'due', due}
  add_field(rows[n], 'headers', read_payload(headers, id))
  add_field(rows[n], 'attributes', read_payload(attributes, id))
  token = token + 1
  if waiting then inherit(id, read_payload(successors, id)) end
end

-- Messages that a consumer of the queue has promoted, or that wait for a retry, are due as well.
local function scan(list, state)
  for _, id in ipairs(redis.call('LRANGE', list, 0, limit - 1)) do
    if is_full() then return end
    local is, due, attempt = read(redis.call('HGET', deliveries, id) or '')
    scanned[state] = scanned[state] + 1
    if is == state and not seen[id] then add(id, due, attempt) else stale[state] = stale[state] + 1 end
  end
end
scan(retry, 'retry')
scan(ready, 'ready')
local listed = #ids
local found = redis.call('ZRANGEBYSCORE', pending, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
for i = 1, #found, 2 do
  if is_full() then break end
  local id, due, attempt = found[i], string.format('%.0f', found[i + 1]), 0
  local record = redis.call('HGET', deliveries, id)
  if record then attempt = select(3, read(record)) end
  add(id, due, attempt or 0)
end
for n = listed + 1, #ids do promoted[#promoted + 1], promoted_dues[#promoted_dues + 1] = ids[n], dues[n] end

local moved, touched = #ids, #ids + #erased + scanned.ready + scanned.retry
if touched > 0 then
  redis.call('XLEN', stream)
  begin(replies, slot)
  -- Adds before it removes: if the stream cannot be written, every message stays in the queue.
  for _, row in ipairs(rows) do redis.call('XADD', stream, '*', unpack(row)) end
  for _, id in ipairs(erased) do redis.call('ZREM', pending, id) end
  if #erased > 0 then redis.call('HDEL', deliveries, unpack(erased)) end
  if scanned.ready > 0 then redis.call('LTRIM', ready, scanned.ready, -1) end
  if scanned.retry > 0 then redis.call('LTRIM', retry, scanned.retry, -1) end
  if stale.ready > 0 then skipped(meta, 'stale_ready', stale.ready) end
  if stale.retry > 0 then skipped(meta, 'stale_retry', stale.retry) end
  if #promoted > 0 then redis.call('ZREM', pending, unpack(promoted)) end
  if moved > 0 then
    erase(messages, retries, deliveries, headers, attributes, errors, ids)
    redis.call('HSET', meta, 'token', tokens[moved])
    redis.call('HINCRBY', meta, 'delivered', moved)
    redis.call('HINCRBY', meta, 'acked', moved)
    settle(done, window, now, ids)
    if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end
  end
end

local next_due = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or -1
local next_deadline = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or -1
local left = redis.call('LLEN', ready) + redis.call('LLEN', retry)
local reply = string.format('%d %.0f %.0f %d %d %.0f %.0f', moved, next_due, next_deadline, left,
  redis.call('SCARD', garbage), now, redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2] or -1)
if touched == 0 then return reply end
remember(replies, slot, sequence, now, reply)
log(events, meta, logged, 'promoted', now, 'ids', promoted, 'dues', promoted_dues)
log(events, meta, logged, 'delivered', now, 'holder', consumer, 'ids', ids, 'tokens', tokens, 'dues', dues,
  'attempts', attempts, 'retries', retries_left)
log(events, meta, logged, 'acked', now, 'ids', ids, 'tokens', tokens)
log(events, meta, logged, 'sent', now, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
return reply
