-- Stores new messages in pending; an id that lives is left alone, or replaced if asked and not running.
-- KEYS: pending zset, unack zset, garbage set, retries hash, messages hash, deliveries hash, headers hash, errors hash,
--   meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), replace (0|1), max_length (ids, 0 for none), stride (4, or 5 with headers),
--   then a message each: id, due (ms from now, or @ms since 1970), retries, payload[, headers]
-- Returns: a digit a message: 1 new, 0 exists, 2 replaced, 3 running, 4 spent and still to be collected
-- Re-run: answers what it answered.
-- Uses: clock, once, record, leave, signal
local pending, unack, garbage, retries, messages, deliveries, headers, errors, meta, replies, wake = unpack(KEYS)
local slot, sequence, override, replace, max_length, stride = unpack(ARGV, 1, 6)
local past = answered(replies, slot, sequence)
if past then return past end

-- Rounded up to the millisecond, so that nothing is due early; what is to come at once is due now, not a moment later.
local time = clock(override) / 1000
local now, at_once = math.ceil(time), math.floor(time)
local ids = {}
for i = 7, #ARGV, stride do ids[#ids + 1] = ARGV[i] end
local length = redis.call('HLEN', messages)
local stored = length > 0 and redis.call('HMGET', messages, unpack(ids)) or {}
local records = length > 0 and redis.call('HMGET', deliveries, unpack(ids)) or {}
redis.call('ZCARD', pending)
redis.call('HLEN', retries)
redis.call('HLEN', meta)
redis.call('LLEN', wake)

local answers, seen, fresh = {}, {}, 0
local dues, budgets, payloads, tops, renewed = {}, {}, {}, {}, {}
for n, id in ipairs(ids) do
  local at = 7 + (n - 1) * stride
  local answer = '1'
  if seen[id] then
    answer = '0'
  elseif stored[n] then
    local state = records[n] and read(records[n]) or 'pending'
    if state == 'garbage' then
      answer = '4'
    elseif replace == '0' then
      answer = '0'
    elseif state == 'leased' then
      answer = '3'
    else
      answer = '2'
      renewed[#renewed + 1] = id
      if state ~= 'pending' then leave(state, id) end
    end
  end
  seen[id], answers[n] = true, answer
  if answer == '1' or answer == '2' then
    if answer == '1' then fresh = fresh + 1 end
    local due = ARGV[at + 1]
    dues[#dues + 1] = string.byte(due) == 64 and string.sub(due, 2) or due == '0' and at_once or now + due
    dues[#dues + 1] = id
    budgets[#budgets + 1], budgets[#budgets + 2] = id, ARGV[at + 2]
    payloads[#payloads + 1], payloads[#payloads + 2] = id, ARGV[at + 3]
    if stride == '5' and ARGV[at + 4] ~= '' then tops[#tops + 1], tops[#tops + 2] = id, ARGV[at + 4] end
  end
end
if tonumber(max_length) > 0 and fresh > 0 and length + fresh > tonumber(max_length) then
  return redis.error_reply('QUEUEFULL the queue holds ' .. length .. ' of at most ' .. max_length .. ' messages')
end
if #tops > 0 or #renewed > 0 then redis.call('HLEN', headers) end
if #renewed > 0 then
  redis.call('ZCARD', unack)
  redis.call('HLEN', errors)
end
-- Adds before it removes, unlike the others: its first write must be the one that a full Redis refuses.
if #dues > 0 then
  local first = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', pending, unpack(dues))
  if #renewed > 0 then
    depart(pending, unack, garbage, meta)
    for _, hash in ipairs({deliveries, headers, errors}) do redis.call('HDEL', hash, unpack(renewed)) end
  end
  redis.call('HSET', retries, unpack(budgets))
  if #tops > 0 then redis.call('HSET', headers, unpack(tops)) end
  redis.call('HSET', messages, unpack(payloads))
  redis.call('HINCRBY', meta, 'sent', fresh)
  local earliest = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]
  if not first or tonumber(earliest) < tonumber(first) then signal(wake) end
end
return remember(replies, slot, sequence, now, table.concat(answers))
