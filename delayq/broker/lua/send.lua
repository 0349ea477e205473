-- Stores new messages in pending; an id that lives is left alone, or replaced if asked and not running; one that was
-- settled within the dedupe window is refused.
-- KEYS: pending zset, unack zset, garbage set, retries hash, messages hash, deliveries hash, headers hash, errors hash,
--   events stream, done zset, runs hash, meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), replace (0|1), max_length (ids, 0 for none), run ('' for none), stride (4, or 5
--   with headers), then a message each: id, due (ms from now, or @ms since 1970), retries, payload[, headers]
-- Returns: a digit a message: 1 new, 0 exists, 2 replaced, 3 running, 4 spent and still to be collected, 5 settled
-- Re-run: answers what it answered.
-- Uses: clock, once, record, leave, signal, log, done, run
local pending, unack, garbage, retries, messages, deliveries, headers, errors, events, done, runs, meta, replies, wake =
  unpack(KEYS)
local slot, sequence, override, replace, max_length, run, stride = unpack(ARGV, 1, 7)
local past = answered(replies, slot, sequence)
if past then return past end

-- Rounded up to the millisecond, so that nothing is due early; what is to come at once is due now, not a moment later.
local time = clock(override) / 1000
local now, at_once = math.ceil(time), math.floor(time)
local ids = {}
for i = 8, #ARGV, stride do ids[#ids + 1] = ARGV[i] end
local length = redis.call('HLEN', messages)
local stored = length > 0 and redis.call('HMGET', messages, unpack(ids)) or {}
local records = length > 0 and redis.call('HMGET', deliveries, unpack(ids)) or {}
redis.call('HLEN', retries)
redis.call('LLEN', wake)
if run ~= '' then redis.call('HLEN', runs) end
local logged, window = switched(meta, events, done)
local ended = window and settled(done, window, at_once, ids) or {}

local answers, seen, fresh, renewed = {}, {}, 0, {}
local dues, budgets, payloads, tops = {}, {}, {}, {}
for n, id in ipairs(ids) do
  local at, state = 8 + (n - 1) * stride, records[n] and read(records[n]) or 'pending'
  local answer = '1'
  if seen[id] then
    answer = seen[id] == '5' and '5' or '0'
  elseif stored[n] then
    answer = state == 'garbage' and '4' or replace == '0' and '0' or state == 'leased' and '3' or '2'
  elseif ended[n] then
    answer = '5'
  end
  seen[id], answers[n] = seen[id] or answer, answer
  if answer == '1' or answer == '2' then
    if answer == '1' then fresh = fresh + 1 else renewed[#renewed + 1] = id end
    if answer == '2' and state ~= 'pending' then leave(state, id) end
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

-- Logs what has got this answer. Many are due at one time, and to write a number costs: it is done once.
local function tell(kind, answer)
  local told, times, left, written = {}, {}, {}, {}
  for i = 1, logged and #dues or 0, 2 do
    local due, id = dues[i], dues[i + 1]
    written[due] = written[due] or string.format('%.0f', due)
    if seen[id] == answer then told[#told + 1], times[#times + 1], left[#left + 1] = id, written[due], budgets[i + 1] end
  end
  log(events, logged, kind, at_once, 'run', run, 'ids', told, 'dues', times, 'retries', left)
end

-- Adds before it removes, unlike the others: its first write must be the one that a full Redis refuses.
if #dues > 0 then
  enter(pending, wake, dues)
  if #renewed > 0 then
    depart(pending, unack, garbage, meta)
    for _, hash in ipairs({deliveries, headers, errors}) do redis.call('HDEL', hash, unpack(renewed)) end
    tell('replaced', '2')
  end
  redis.call('HSET', retries, unpack(budgets))
  if #tops > 0 then redis.call('HSET', headers, unpack(tops)) end
  redis.call('HSET', messages, unpack(payloads))
  redis.call('HINCRBY', meta, 'sent', fresh)
  if fresh > 0 then tell('sent', '1') end
end
local answer = table.concat(answers)
if run ~= '' then add_up(runs, run, at_once, answer) end
return remember(replies, slot, sequence, now, answer)
