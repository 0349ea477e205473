-- Returns leased messages that were not started to the head of ready; charges no retry.
-- KEYS: ready list, unack zset, deliveries hash, events stream, meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per receipt: id, token
-- Returns: a status per receipt: 1 released, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: clock, once, record, signal, log
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
local statuses, seen, released, tokens, records = {}, {}, {}, {}, {}
for n, id in ipairs(ids) do
  local state, due, attempts, first, token, consumer = read(known[n] or '')
  statuses[n] = '0'
  if state == 'leased' and token == ARGV[3 + 2 * n] and not seen[id] then
    statuses[n], seen[id] = '1', true
    -- LPUSH reverses the order: reversed here, they keep it.
    table.insert(released, 1, id)
    table.insert(tokens, 1, token)
    records[#records + 1] = id
    records[#records + 1] = write('ready', due, string.format('%d', attempts - 1), first, token, consumer)
  end
end
begin(replies, slot)
if #released > 0 then
  redis.call('ZREM', unack, unpack(released))
  redis.call('HSET', deliveries, unpack(records))
  redis.call('LPUSH', ready, unpack(released))
  redis.call('HINCRBY', meta, 'released', #released)
  signal(wake)
end
local reply = remember(replies, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'released', now, 'ids', released, 'tokens', tokens)
return reply
