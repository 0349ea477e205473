-- Compares the counters of meta with what they count, and sets those right that are off; takes wake-ups away that are
-- too many. What a longer list or unack holds is not counted: there a counter is only kept within its bounds.
-- KEYS: ready list, unack zset, retry list, deliveries hash, meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), mend (1, or 0 to look only), limit (ids to count in each)
-- Returns: "ready retry backoffs wake": how much too high the stale entries of each list and the backoffs are, and how
--   many wake-ups are too many
-- Re-run: answers what it answered; a call that only looks has nothing to remember and looks again.
-- Uses: clock, once, record
local ready, unack, retry, deliveries, meta, replies, wake = unpack(KEYS)
local slot, sequence, override, mend, limit = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local counters = redis.call('HMGET', meta, 'stale_ready', 'stale_retry', 'backoffs')

-- Returns how many of some ids have a record of this state.
local function recorded(state, ids)
  local seen, found = {}, 0
  for n, record in ipairs(#ids > 0 and redis.call('HMGET', deliveries, unpack(ids)) or {}) do
    if not seen[ids[n]] and read(record or '') == state then seen[ids[n]], found = true, found + 1 end
  end
  return found
end

local function within(most, counter)
  return math.max(0, math.min(most, tonumber(counter or 0) or 0))
end

local function stale(list, state, counter)
  local length = redis.call('LLEN', list)
  if length > tonumber(limit) then return within(length, counter) end
  return length - recorded(state, redis.call('LRANGE', list, 0, -1))
end

local held = redis.call('ZCARD', unack)
local backoffs = held > tonumber(limit) and within(held, counters[3])
  or recorded('backoff', redis.call('ZRANGE', unack, 0, -1))
local right = {stale(ready, 'ready', counters[1]), stale(retry, 'retry', counters[2]), backoffs}
local off = {math.max(redis.call('LLEN', wake) - 1, 0)}
for n = 3, 1, -1 do table.insert(off, 1, (tonumber(counters[n] or 0) or -1) - right[n]) end
local answer = string.format('%d %d %d %d', unpack(off))
if mend == '0' then return answer end

begin(replies, slot)
if off[4] > 0 then redis.call('LPOP', wake, off[4]) end
for n, name in ipairs({'stale_ready', 'stale_retry', 'backoffs'}) do
  if off[n] ~= 0 then redis.call('HSET', meta, name, right[n]) end
end
return remember(replies, slot, sequence, now, answer)
