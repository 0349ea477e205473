-- Moves ids whose lease or backoff is over from unack to retry, those with a priority to ranked. An expired lease costs
-- one retry if the callback has started, else the attempt does not count. Moves ids to garbage if no retry is left, and
-- uncharged if they were asked to stop.
-- KEYS: unack zset, ranked zset, running zset, gates zset, retry list, garbage set, retries hash, deliveries hash,
--   attributes hash, errors hash, events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), limit (ids)
-- Returns: "retried spent next_deadline": ids; ids; ms or -1; then a line for each lease that has cost a retry: "id attempt
--   retries_left name consumer", with the retries that the attempt had
-- Re-run: returns the same reply; a call that moved nothing is not remembered and runs again.
-- Uses: bytes, clock, numbers, once, schema, record, started, rank, signal, places, log
local unack, ranked, running, gates, retry, garbage, retries, deliveries, attributes, errors, events, meta,
  wake = unpack(KEYS)
local slot, sequence, override, limit = unpack(ARGV, 1, 4)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local ids = redis.call('ZRANGEBYSCORE', unack, '-inf', now, 'LIMIT', 0, limit)
local again, listed, spent, records, retry_counts, causes, backoffs = {}, {}, {}, {}, {}, {}, 0
local expired, unstarted = {ids = {}, tokens = {}, left = {}}, {ids = {}, tokens = {}}
local ranks, tokens, lost, over, logged = {}, {}, {}, {}
if #ids > 0 then
  local known = redis.call('HMGET', deliveries, unpack(ids))
  local known_retries = retries_of(retries, ids)
  redis.call('LLEN', retry)
  redis.call('SCARD', garbage)
  redis.call('HLEN', errors)
  local settings = redis.call('HMGET', meta, 'events', 'priority_step', 'limited')
  local step = settings[2]
  local texts = attributes_to_rank(attributes, step, ids)
  if step then redis.call('ZCARD', ranked) end
  local placed = look_at_places(running, gates, wake, settings[3])
  logged = settings[1]
  for i, id in ipairs(ids) do
    local state, due, attempts, first, token, consumer = read_in('unknown', known[i], now)
    local left, to = whole(known_retries[i]) or 0, 'retry'
    if state == 'backoff' then
      backoffs = backoffs + 1
    elseif state == 'leased' and mark_of(consumer) == '*' then
      to = 'garbage'
    elseif state == 'leased' and (mark_of(consumer) or '+') ~= '+' then
      unstarted.ids[#unstarted.ids + 1], unstarted.tokens[#unstarted.ids + 1] = id, token
      attempts = string.format('%d', math.max(attempts - 1, 0))
    elseif state == 'leased' then
      local n = #expired.ids + 1
      expired.ids[n], expired.tokens[n], expired.left[n] = id, token, left > 0 and left - 1
      causes[#causes + 1], causes[#causes + 2] = id, 'lease expired'
      local name = string.match(' ' .. (read_payload(attributes, id) or ''), ' name=(%S+)')
      lost[n] = string.format('\n%s %s %d %s %s', id, attempts, left, name or '', unmarked(consumer))
      if left == 0 then to = 'garbage' end
      if mark_of(consumer) then consumer = marked(consumer, '?') end
      retry_counts[#retry_counts + 1], retry_counts[#retry_counts + 2] = id, math.max(left - 1, 0)
    end
    if not state or to == 'garbage' then over[#over + 1] = id end
    local rank = state and to == 'retry' and rank_of(texts[i], due, step)
    if rank then
      -- In retry the place says that it is claimed alone, here the mark does.
      to, consumer = 'ranked', mark_of(consumer) and marked(consumer, '!') or consumer
      ranks[#ranks + 1], ranks[#ranks + 2] = rank, id
    end
    if state then
      table.insert(to == 'garbage' and spent or again, id)
      if to == 'retry' then listed[#listed + 1] = id end
      if to ~= 'garbage' then tokens[#again] = token end
      records[#records + 1], records[#records + 2] = id, write(to, due, attempts, first, token, consumer)
    end
  end
  begin(meta, slot)
  redis.call('ZREMRANGEBYRANK', unack, 0, #ids - 1)
  if #listed > 0 then redis.call('RPUSH', retry, unpack(listed)) end
  if #ranks > 0 then redis.call('ZADD', ranked, unpack(ranks)) end
  if #spent > 0 then redis.call('SADD', garbage, unpack(spent)) end
  if #records > 0 then redis.call('HSET', deliveries, unpack(records)) end
  if placed then
    free_places(running, gates, wake, over, false)
    free_places(running, gates, wake, again, true)
  end
  if #expired.ids > 0 then
    redis.call('HSET', retries, unpack(retry_counts))
    redis.call('HSET', errors, unpack(causes))
    increase(meta, 'expired', #expired.ids)
  end
  if #unstarted.ids > 0 then increase(meta, 'released', #unstarted.ids) end
  if backoffs > 0 then increase(meta, 'backoffs', -backoffs) end
end
local next_deadline = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or -1
local reply = string.format('%d %d %.0f', #again, #spent, next_deadline) .. table.concat(lost)
if #ids == 0 then return reply end
remember(meta, slot, sequence, now, reply)
log(events, meta, logged, 'expired', now, 'ids', expired.ids, 'tokens', expired.tokens, 'retries', expired.left)
log(events, meta, logged, 'released', now, 'ids', unstarted.ids, 'tokens', unstarted.tokens)
log(events, meta, logged, 'retried', now, 'ids', again, 'tokens', tokens)
return reply
