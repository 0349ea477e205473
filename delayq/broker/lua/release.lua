-- Returns leased messages that were not started to the head of ready; charges no retry. One that another process has
-- asked for waits in unack for a second, so that this process finds it before a consumer does.
-- KEYS: ready list, unack zset, deliveries hash, events stream, meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per receipt: id, token
-- Returns: a status per receipt: 1 released, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: clock, once, record, started, signal, log
local ready, unack, deliveries, events, meta, replies, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local ids = {}
for i = 4, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', deliveries, unpack(ids))
redis.call('LLEN', ready)
redis.call('ZCARD', unack)
local logged = logging(meta)
redis.call('LLEN', wake)
local statuses, seen, released, tokens, records, back, asked_for = {}, {}, {}, {}, {}, {}, {}
for n, id in ipairs(ids) do
  local state, due, attempts, first, token, consumer = read(known[n] or '')
  statuses[n] = '0'
  if state == 'leased' and token == ARGV[3 + 2 * n] and not seen[id] then
    local to = mark_of(consumer) == '-' and 'backoff' or 'ready'
    statuses[n], seen[id] = '1', true
    -- LPUSH reverses the order: reversed here, they keep it.
    table.insert(released, 1, id)
    table.insert(tokens, 1, token)
    if to == 'ready' then
      table.insert(back, 1, id)
    else
      asked_for[#asked_for + 1], asked_for[#asked_for + 2], consumer = now + 1000, id, unmarked(consumer)
    end
    records[#records + 1] = id
    records[#records + 1] = write(to, due, string.format('%d', attempts - 1), first, token, consumer)
  end
end
begin(replies, slot)
if #released > 0 then
  redis.call('ZREM', unack, unpack(released))
  redis.call('HSET', deliveries, unpack(records))
  if #back > 0 then
    redis.call('LPUSH', ready, unpack(back))
    signal(wake)
  end
  if #asked_for > 0 then
    redis.call('ZADD', unack, unpack(asked_for))
    redis.call('HINCRBY', meta, 'backoffs', #asked_for / 2)
  end
  redis.call('HINCRBY', meta, 'released', #released)
end
local reply = remember(replies, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'released', now, 'ids', released, 'tokens', tokens)
return reply
