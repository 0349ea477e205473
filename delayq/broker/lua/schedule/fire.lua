-- Fires occurrences of schedules: stores their messages and advances each schedule to its next occurrence, if it has
-- not changed since the caller read it. A message whose id exists is left unchanged.
-- KEYS: schedules zset, schedule_states hash, pending zset, retries hash, messages hash, headers hash,
--   attributes hash, events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then per schedule: name, revision, next occurrence (ms, '' for none), last
--   occurrence (ms), retries, payload, headers, ids and due times (ms) of its messages, what to do (skip, after) while
--   which ids live ('' for nothing), attributes ('' for none)
-- Returns: a status per schedule: 1 fired, 0 it has changed, or the byte budget is spent: read it again, 2 not yet: the
--   message of an earlier occurrence lives, 3 advanced without a message for that reason
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, schedule, attributed, signal, log
local schedules, schedule_states, pending, retries, messages, headers, attributes, events, meta, wake =
  unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
redis.call('ZCARD', schedules)
redis.call('HLEN', retries)
redis.call('HLEN', headers)
redis.call('HLEN', attributes)
local logged, note = logging(meta), noting(meta)
local statuses, moved, ended, states, seen = {}, {}, {}, {}, {}
local dues, retry_counts, payloads, header_texts, texts, ids, times, left = {}, {}, {}, {}, {}, {}, {}, {}

-- Returns what to do if one of the messages lives that an occurrence must not overlap.
local function living(overlap)
  local policy, others = string.match(overlap, '^(%a+) (.+)$')
  for id in string.gmatch(others or '', '%S+') do
    if read_payload(messages, id) then return policy end
  end
end

for i = 4, #ARGV, 10 do
  local name, revision, at, latest, retry_count, payload, header_text, occurrences, overlap, text =
    unpack(ARGV, i, i + 9)
  local current, fired, last = state_of(schedule_states, name)
  statuses[#statuses + 1] = '0'
  local open = current == revision and not seen[name] and bytes_left > 0
  local lives = open and living(overlap)
  if lives == 'after' then
    statuses[#statuses] = '2'
  elseif open then
    statuses[#statuses], seen[name] = '1', true
    if lives == 'skip' then statuses[#statuses], occurrences = '3', '' end
    for id, due in string.gmatch(occurrences, '(%S+) (%d+)') do
      fired, last = fired + 1, latest
      if not read_payload(messages, id) then
        ids[#ids + 1], times[#times + 1], left[#left + 1] = id, due, retry_count
        dues[#dues + 1], dues[#dues + 2] = due, id
        retry_counts[#retry_counts + 1], retry_counts[#retry_counts + 2] = id, retry_count
        payloads[#payloads + 1], payloads[#payloads + 2] = id, payload
        if header_text ~= '' then header_texts[#header_texts + 1], header_texts[#header_texts + 2] = id, header_text end
        if text ~= '' then
          texts[#texts + 1], texts[#texts + 2] = id, text
          note_kinds(text)
        end
      end
    end
    states[#states + 1], states[#states + 2] = name, as_state(next_revision(current, time), fired, last, '0')
    if at == '' then ended[#ended + 1] = name else moved[#moved + 1], moved[#moved + 2] = at, name end
  end
end

-- Adds before it removes, like send: a full Redis refuses the whole call, and the occurrences fire once it has memory.
if #ids > 0 then
  enter(pending, wake, dues, math.min(unpack(times)))
  redis.call('HSET', retries, unpack(retry_counts))
  if #header_texts > 0 then redis.call('HSET', headers, unpack(header_texts)) end
  if #texts > 0 then
    redis.call('HSET', attributes, unpack(texts))
    note_attributes(meta)
  end
  redis.call('HSET', messages, unpack(payloads))
  increase(meta, 'sent', #ids)
end
begin(meta, slot)
if #moved > 0 then redis.call('ZADD', schedules, unpack(moved)) end
if #ended > 0 then redis.call('ZREM', schedules, unpack(ended)) end
if #states > 0 then redis.call('HSET', schedule_states, unpack(states)) end
if #states > 0 then note(now) end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'sent', now, 'ids', ids, 'dues', times, 'retries', left)
return reply
