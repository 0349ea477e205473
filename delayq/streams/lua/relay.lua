-- Moves due messages of a delay queue, with all their fields, into a stream, those of a call in the order of their ranks.
-- For the queue they are delivered and done, and a successor that waits takes the place of its message.
-- KEYS: pending zset, ready list, ranked zset, unack zset, retry list, garbage set, retries hash, messages hash,
--   deliveries hash, headers hash, attributes hash, errors hash, successors hash, gathered hash, schedules zset, events stream,
--   done zset, meta hash, wake list, stream stream
-- ARGV: slot, sequence, now (ms or ''), limit (ids), consumer
-- Returns: "moved next_due next_deadline waiting garbage now next_schedule": ids; ms or -1; ms or -1; entries left in
--   ready, ranked and retry; ids; ms; ms or -1
-- Re-run: returns the same reply; a call that moved nothing was not remembered and executes again.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, stale, sources, rank, due, erase, signal, successor,
--   gathered, parted, log, done
local pending, ready, ranked, unack, retry, garbage, retries, messages, deliveries, headers, attributes, errors,
  successors, gathered, schedules, events, done, meta, wake, stream = unpack(KEYS)
local slot, sequence, override, limit, consumer = unpack(ARGV, 1, 5)
local past, logged, schema = begun(meta, done, slot, sequence)
if past then return past end

local time = clock(override)
local now, limit = math.floor(time / 1000), tonumber(limit)
local counters = redis.call('HMGET', meta, 'token', 'stale_ready', 'stale_retry', 'priority_step')
local waiting = waiting_in(successors, schema, pending, wake)
if schema == '6' then
  redis.call('HLEN', gathered)
  redis.call('HLEN', successors)
end
local step, token = counters[4], math.max((whole(counters[1]) or 0) + 1, time)
local ids, tokens, dues, attempts, retries_left, rows, erased, texts = {}, {}, {}, {}, {}, {}, {}, {}
local in_ready = source_of(ready, 'ready', redis.call('LLEN', ready))
local in_retry = source_of(retry, 'retry', redis.call('LLEN', retry))
local in_ranked = source_of(ranked, 'ranked', step and redis.call('ZCARD', ranked) or 0)
scan_limit = limit + 1000
local function is_full() return #ids >= limit or bytes_left <= 0 end
local function add_field(row, name, text) if text then row[#row + 1], row[#row + 2] = name, text end end

local function add(id, due, attempt)
  local payload, text = read_payload(messages, id), read_payload(attributes, id)
  if not payload then erased[#erased + 1] = id return end
  local group = payload == '' and group_of(text)
  if group then payload, text = take_batch(gathered, id, group), closed_text(group) end
  local n = #ids + 1
  ids[n], dues[n], attempts[n] = id, due, string.format('%d', attempt + 1)
  tokens[n], retries_left[n] = string.format('%.0f', token), retries_of(retries, {id})[1]
  rows[n] = {'id', id, 'payload', payload, 'retries', retries_left[n], 'due', due}
  add_field(rows[n], 'headers', read_payload(headers, id))
  texts[id] = text
  add_field(rows[n], 'attributes', text)
  token = token + 1
  if group and group.count > 0 then
    inherit(id, rest_of(group, now, retries_left[n], read_payload(headers, id) or ''))
  elseif waiting then
    inherit(id, read_payload(successors, id))
  end
end
-- Messages that a consumer of the queue has promoted, or that wait for a retry, are due as well.
take(in_retry, nil, deliveries, attributes, limit, is_full, add)
take(in_ready, in_ranked, deliveries, attributes, limit, is_full, add)
local found = redis.call('ZRANGEBYSCORE', pending, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
local due_ids, due_times = due_of(found)
if step then sort_by_rank(due_ids, due_times, attributes_to_rank(attributes, step, due_ids), step) end
local listed, promoted, promoted_dues = #ids, {}, {}
for _, id in ipairs(due_ids) do
  if is_full() then break end
  local attempt, record = 0, redis.call('HGET', deliveries, id)
  if record then attempt = select(3, read(record)) end
  add(id, due_times[id], attempt or 0)
end
for n = listed + 1, #ids do promoted[#promoted + 1], promoted_dues[#promoted_dues + 1] = ids[n], dues[n] end
local moved, touched = #ids, #ids + #erased + in_ready.scanned + in_ranked.scanned + in_retry.scanned
if touched > 0 then
  redis.call('XLEN', stream)
  begin(meta, slot)
  -- Adds before it removes: if the stream cannot be written, every message stays in the queue.
  for _, row in ipairs(rows) do redis.call('XADD', stream, '*', unpack(row)) end
  for _, id in ipairs(erased) do redis.call('ZREM', pending, id) end
  if #erased > 0 then redis.call('HDEL', deliveries, unpack(erased)) end
  remove_read(meta, in_ready, in_retry, in_ranked)
  if #promoted > 0 then redis.call('ZREM', pending, unpack(promoted)) end
  if moved > 0 then
    erase(messages, retries, deliveries, headers, attributes, errors, ids)
    redis.call('HSET', meta, 'token', tokens[moved])
    increase(meta, 'delivered', moved)
    increase(meta, 'acked', moved)
    settle(done, now, ids, texts)
    delete_taken(gathered)
    if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end
  end
end
local next_due = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or -1
local next_deadline = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or -1
local left = redis.call('LLEN', ready) + (step and redis.call('ZCARD', ranked) or 0) + redis.call('LLEN', retry)
local reply = string.format('%d %.0f %.0f %d %d %.0f %.0f', moved, next_due, next_deadline, left,
  redis.call('SCARD', garbage), now, redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2] or -1)
if touched == 0 then return reply end
remember(meta, slot, sequence, now, reply)
log(events, meta, logged, 'promoted', now, 'ids', promoted, 'dues', promoted_dues)
log(events, meta, logged, 'delivered', now, 'holder', consumer, 'ids', ids, 'tokens', tokens, 'dues', dues,
  'attempts', attempts, 'retries', retries_left)
log(events, meta, logged, 'acked', now, 'ids', ids, 'tokens', tokens)
log(events, meta, logged, 'sent', now, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
return reply
