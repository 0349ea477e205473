-- Returns leased messages to the head of ready, those with a priority to ranked, or for a delay to unack, as a nack does,
-- but charges no retry and does not count the attempt. One that another process has asked for waits in unack for a
-- second at least, so that this process finds it before a consumer does. One that was asked to stop goes to garbage.
-- One that no callback has started for gives its start back to the rates of its limits. What was reported is kept.
-- KEYS: ready list, ranked zset, unack zset, running zset, limits hash, gates zset, garbage set, deliveries hash,
--   attributes hash, events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per release: id, token, delay (ms), attributes from now on ('' to leave them;
--   without progress, which stays as stored), unstarted (1 if no callback was started for it)
-- Returns: a status per release: 1 released, 2 asked to stop, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, schema, attributed, record, started, rank, signal, places, limit, give_back, log
local ready, ranked, unack, running, limits, gates, garbage, deliveries, attributes, events, meta,
  wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local time = clock(override) / 1000
local now = math.floor(time)
local ids, writes = {}, false
for i = 4, #ARGV, 5 do ids[#ids + 1], writes = ARGV[i], writes or ARGV[i + 3] ~= '' end
local known = redis.call('HMGET', deliveries, unpack(ids))
redis.call('LLEN', ready)
redis.call('ZCARD', unack)
local logged, step, limited = unpack(redis.call('HMGET', meta, 'events', 'priority_step', 'limited'))
local placed = look_at_places(running, gates, wake, limited)
local texts = attributes_to_rank(attributes, step or writes, ids)
if step then redis.call('ZCARD', ranked) end
redis.call('LLEN', wake)
local statuses, seen, released, tokens, records, back, later, due_again, changed = {}, {}, {}, {}, {}, {}, {}, {}, {}
local ranks, stopped, unstarted, given = {}, {}, {}, {}
for n, id in ipairs(ids) do
  local state, due, attempts, first, token, consumer = read(known[n] or '')
  statuses[n] = '0'
  local held = state == 'leased' and token == ARGV[5 * n] and not seen[id]
  if held and ARGV[3 + 5 * n] == '1' then unstarted[#unstarted + 1], given[#given + 1] = id, token end
  if held and mark_of(consumer) == '*' then
    statuses[n], seen[id], stopped[#stopped + 1] = '2', true, id
    records[#records + 1], records[#records + 2] = id, write('garbage', due, attempts, first, token, consumer)
  elseif held then
    local delay = tonumber(ARGV[1 + 5 * n])
    if mark_of(consumer) == '-' then delay = math.max(delay, 1000) end
    local rank = step and delay <= 0 and rank_of(ARGV[2 + 5 * n] ~= '' and ARGV[2 + 5 * n] or texts[n], due, step)
    local to = delay > 0 and 'backoff' or rank and 'ranked' or 'ready'
    statuses[n], seen[id] = '1', true
    -- LPUSH reverses the order: reversed here, they keep it.
    table.insert(released, 1, id)
    table.insert(tokens, 1, token)
    if to == 'ready' then
      table.insert(back, 1, id)
    elseif rank then
      ranks[#ranks + 1], ranks[#ranks + 2] = rank, id
    else
      later[#later + 1], consumer = id, unmarked(consumer)
      due_again[#due_again + 1], due_again[#due_again + 2] = math.ceil(time) + delay, id
    end
    if ARGV[2 + 5 * n] ~= '' then
      local reported = string.match(' ' .. (texts[n] or ''), ' progress=%S*') or ''
      changed[#changed + 1], changed[#changed + 2] = id, ARGV[2 + 5 * n] .. reported
    end
    records[#records + 1] = id
    records[#records + 1] = write(to, due, string.format('%d', math.max(attempts - 1, 0)), first, token, consumer)
  end
end
if #stopped > 0 then redis.call('SCARD', garbage) end
local changed_limits = limited and give_back_starts(limits, gates, attributes, time * 1000, unstarted, given) or {}
begin(meta, slot)
if #stopped > 0 then
  redis.call('ZREM', unack, unpack(stopped))
  redis.call('SADD', garbage, unpack(stopped))
end
if #released > 0 then redis.call('ZREM', unack, unpack(released)) end
if #records > 0 then redis.call('HSET', deliveries, unpack(records)) end
if #released > 0 then
  if #back > 0 then redis.call('LPUSH', ready, unpack(back)) end
  if #ranks > 0 then redis.call('ZADD', ranked, unpack(ranks)) end
  if #back + #ranks > 0 then signal(wake) end
  if #later > 0 then
    redis.call('ZADD', unack, unpack(due_again))
    increase(meta, 'backoffs', #later)
    signal_if_first(wake, unack, later)
  end
  increase(meta, 'released', #released)
  if #changed > 0 then
    redis.call('HSET', attributes, unpack(changed))
    note_attributes(meta)
  end
end
if placed then
  free_places(running, gates, wake, stopped, false)
  free_places(running, gates, wake, released, true)
end
put_starts(limits, gates, wake, changed_limits, now + 1)
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'released', now, 'ids', released, 'tokens', tokens)
return reply
