-- Examines messages, and mends those that are not in the one place that their record names. None is lost: what has
-- a payload and no place is due at once, or at its time where the record knows it.
-- KEYS: pending zset, ready list, unack zset, retry list, garbage set, retries hash, messages hash, deliveries hash,
--   headers hash, errors hash, events stream, meta hash, replies hash
-- ARGV: slot, sequence, now (ms or ''), mend (1, or 0 to look only), look (1 to search ready and retry, else 0),
--   retries (of a message that has none), then ids
-- Returns: a digit an id: 0 well, 1 place without payload, 2 payload without place, 3 in a second place, 4 remains of
--   no message, 5 without retries, 6 record unreadable; not searched, 7 well if it is in ready, 8 if in retry
-- Re-run: answers what it answered; a call that only looks has nothing to remember and looks again.
-- Uses: clock, once, record, health, leave, erase, log
local pending, ready, unack, retry, garbage, retries, messages, deliveries, headers, errors, events, meta, replies =
  unpack(KEYS)
local slot, sequence, override, mend, look, budget = unpack(ARGV, 1, 6)
local past = answered(replies, slot, sequence)
if past then return past end

local now, ids = math.floor(clock(override) / 1000), {}
for i = 7, #ARGV do ids[#ids + 1] = ARGV[i] end
redis.call('LLEN', ready)
redis.call('LLEN', retry)
for _, hash in ipairs({headers, errors}) do redis.call('HLEN', hash) end
local logged = logging(meta, events)
local answers, seen, ill, gone, extra, torn = {}, {}, {}, {}, {{}, {}, {}}, {}
local found = examine(pending, unack, garbage, retries, messages, deliveries, headers, errors, ids)
for n, one in ipairs(found) do
  answers[n] = '0'
  if one and not seen[one.id] then
    if one.digit >= '7' and (look == '1' or #one.also > 0 or not one.budget) then
      search(one.state == 'ready' and ready or retry, one)
    end
    answers[n], seen[one.id] = one.digit, true
    if one.digit > '0' and one.digit < '7' then
      ill[#ill + 1] = one
      for _, place in ipairs(one.also) do table.insert(extra[place], one.id) end
      if one.torn then torn[#torn + 1] = one.id end
      if one.gone then gone[#gone + 1] = one.id end
    end
  end
end
local answer = table.concat(answers)
if mend == '0' then return answer end

begin(replies, slot)
if #gone > 0 then erase(messages, retries, deliveries, headers, errors, gone) end
if #torn > 0 then redis.call('HDEL', deliveries, unpack(torn)) end
if #extra[1] > 0 then redis.call('ZREM', pending, unpack(extra[1])) end
if #extra[2] > 0 then redis.call('ZREM', unack, unpack(extra[2])) end
if #extra[3] > 0 then redis.call('SREM', garbage, unpack(extra[3])) end
local again, times = {}, {}
for _, one in ipairs(ill) do
  if one.gone or (one.digit == '2' and one.place == 2) then leave(one.state or 'pending', one.id) end
end
depart(pending, unack, garbage, meta)
for _, one in ipairs(ill) do
  local id, _, due, attempts, first, token, holder = one.id, unpack(one.record)
  if one.digit == '2' and one.place == 3 then
    redis.call('SADD', garbage, id)
  elseif one.digit == '2' then
    local at = string.format('%.0f', math.max(now, one.state and due or 0))
    times[#again + 1], again[#again + 1] = at, id
    redis.call('ZADD', pending, at, id)
    if one.state then redis.call('HSET', deliveries, id, write('pending', at, attempts, first, token, holder)) end
  end
  if not one.gone and not one.budget then redis.call('HSET', retries, id, budget) end
end
if #ill > 0 then redis.call('HINCRBY', meta, 'repaired', #ill) end
if #again > 0 then log(events, logged, 'rescheduled', now, 'ids', again, 'dues', times) end
return remember(replies, slot, sequence, now, answer)
