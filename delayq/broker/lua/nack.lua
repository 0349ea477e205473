-- Brings leased messages back after a delay with one retry less and the error kept; to garbage when none is left.
-- KEYS: unack zset, garbage set, retries hash, deliveries hash, errors hash, events stream,
--   meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then a failure each: id, token, delay (ms), error ('' for none)
-- Returns: a digit a failure: 1 will be retried, 2 spent, 0 not leased under this token
-- Re-run: answers what it answered.
-- Uses: clock, once, record, signal, log
local unack, garbage, retries, deliveries, errors, events, meta, replies, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local time = clock(override) / 1000
local now = math.ceil(time)
local ids = {}
for i = 4, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', deliveries, unpack(ids))
local budget = redis.call('HMGET', retries, unpack(ids))
redis.call('ZCARD', unack)
redis.call('SCARD', garbage)
redis.call('HLEN', errors)
local logged = logging(meta, events)
redis.call('LLEN', wake)
local answers, seen, again, due_again, spent = {}, {}, {}, {}, {}
local records, budgets, causes = {}, {}, {}
local held, tokens, left_after, texts = {}, {}, {}, {}
for n, id in ipairs(ids) do
  local at = 4 * n
  local state, due, attempts, first, token, holder = read(known[n] or '')
  answers[n] = '0'
  if state == 'leased' and token == ARGV[at + 1] and not seen[id] then
    local left, to = tonumber(budget[n] or 0), 'backoff'
    seen[id], held[#held + 1], tokens[#tokens + 1], texts[#texts + 1] = true, id, token, ARGV[at + 3]
    left_after[#held] = left > 0 and left - 1
    if left > 0 then
      answers[n], again[#again + 1] = '1', id
      due_again[#due_again + 1], due_again[#due_again + 2] = now + ARGV[at + 2], id
      budgets[#budgets + 1], budgets[#budgets + 2] = id, left - 1
    else
      answers[n], spent[#spent + 1], to = '2', id, 'garbage'
    end
    records[#records + 1], records[#records + 2] = id, write(to, due, attempts, first, token, holder)
    if ARGV[at + 3] ~= '' then causes[#causes + 1], causes[#causes + 2] = id, ARGV[at + 3] end
  end
end
begin(replies, slot)
if #spent > 0 then
  redis.call('ZREM', unack, unpack(spent))
  redis.call('SADD', garbage, unpack(spent))
end
if #again > 0 then
  redis.call('ZADD', unack, unpack(due_again))
  redis.call('HSET', retries, unpack(budgets))
  redis.call('HINCRBY', meta, 'backoffs', #again)
  signal_if_first(wake, unack, again)
end
if #held > 0 then
  redis.call('HSET', deliveries, unpack(records))
  redis.call('HINCRBY', meta, 'nacked', #held)
  log(events, logged, 'nacked', math.floor(time), 'ids', held, 'tokens', tokens, 'retries', left_after, 'errors', texts)
end
if #causes > 0 then redis.call('HSET', errors, unpack(causes)) end
return remember(replies, slot, sequence, now, table.concat(answers))
