-- Fires occurrences of schedules: stores their messages and moves each schedule on to its next occurrence, if it still
-- stands as the caller has read it. A message whose id lives is left alone.
-- KEYS: schedules zset, schedule_states hash, pending zset, retries hash, messages hash, headers hash, events stream,
--   meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then a schedule each: name, revision, next occurrence (ms, '' for none), last
--   occurrence (ms), retries, payload, headers, ids and due times (ms) of its messages
-- Returns: a digit a schedule: 1 fired, 0 it stands otherwise
-- Re-run: answers what it answered.
-- Uses: clock, once, schedule, signal, log
local schedules, schedule_states, pending, retries, messages, headers, events, meta, replies, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
redis.call('ZCARD', schedules)
redis.call('HLEN', retries)
redis.call('HLEN', headers)
redis.call('LLEN', wake)
local logged = logging(meta, events)
local answers, moved, ended, states, seen = {}, {}, {}, {}, {}
local dues, budgets, payloads, tops, ids, times, left = {}, {}, {}, {}, {}, {}, {}
for i = 4, #ARGV, 8 do
  local name, revision, at, latest, budget, payload, top, occurrences = unpack(ARGV, i, i + 7)
  local stood, fired, last, paused = state_of(schedule_states, name)
  answers[#answers + 1] = '0'
  if stood == revision and not seen[name] then
    answers[#answers], seen[name] = '1', true
    for id, due in string.gmatch(occurrences, '(%S+) (%d+)') do
      fired, last = fired + 1, latest
      if not redis.call('HGET', messages, id) then
        ids[#ids + 1], times[#times + 1], left[#left + 1] = id, due, budget
        dues[#dues + 1], dues[#dues + 2] = due, id
        budgets[#budgets + 1], budgets[#budgets + 2] = id, budget
        payloads[#payloads + 1], payloads[#payloads + 2] = id, payload
        if top ~= '' then tops[#tops + 1], tops[#tops + 2] = id, top end
      end
    end
    states[#states + 1], states[#states + 2] = name, as_state(risen(stood, time), fired, last, paused)
    if at == '' then ended[#ended + 1] = name else moved[#moved + 1], moved[#moved + 2] = at, name end
  end
end

-- Adds before it removes, as a send does: a full Redis refuses the whole, and the occurrences are fired when it has room.
if #ids > 0 then
  enter(pending, wake, dues)
  redis.call('HSET', retries, unpack(budgets))
  if #tops > 0 then redis.call('HSET', headers, unpack(tops)) end
  redis.call('HSET', messages, unpack(payloads))
  redis.call('HINCRBY', meta, 'sent', #ids)
  log(events, logged, 'sent', now, 'ids', ids, 'dues', times, 'retries', left)
end
begin(replies, slot)
if #moved > 0 then redis.call('ZADD', schedules, unpack(moved)) end
if #ended > 0 then redis.call('ZREM', schedules, unpack(ended)) end
if #states > 0 then redis.call('HSET', schedule_states, unpack(states)) end
return remember(replies, slot, sequence, now, table.concat(answers))
