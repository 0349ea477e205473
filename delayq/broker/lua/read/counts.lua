-- Counts the messages in each state at one moment.
-- KEYS: pending zset, ready list, ranked zset, throttled zset, unack zset, retry list, garbage set, dead zset,
--   messages hash, deliveries hash, successors hash, completed zset, beats zset, meta hash
-- ARGV: now (ms or ''), then fields of meta
-- Returns: now (ms), next due (ms or -1; of what is not due yet), oldest due (ms or -1; of the first ready,
--   the first and last hundred ranked, or of a pending one that is due),
--   next deadline (ms or -1), then counts: pending, ready, active, backoff, retry, garbage, dead, messages, overdue
--   (messages that wait for a consumer), held (leases that have not expired), successors that wait, completed,
--   throttled, workers (consumers that have reported lately), heard (those
--   of them that have within 30 s, as they tell often); then the values of the fields, nil for none
-- Re-run: reads only.
-- Uses: clock, numbers, record, living
local pending, ready, ranked, throttled, unack, retry, garbage, dead, messages, deliveries, successors, completed, beats,
  meta = unpack(KEYS)
local marks = redis.call('HMGET', meta, 'stale_ready', 'stale_retry', 'backoffs', 'priority_step')
local backoffs = whole(marks[3]) or 0
local now = string.format('%.0f', math.floor(clock(ARGV[1]) / 1000))
local due = redis.call('ZCOUNT', pending, '-inf', now) -- what nobody has moved to ready yet is ready all the same
local next_due = redis.call('ZRANGEBYSCORE', pending, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local ready_count = living_in(ready, marks[1])
local ranked_count = marks[4] and redis.call('ZCARD', ranked) or 0
local retry_count = living_in(retry, marks[2])
local ended = redis.call('ZCOUNT', unack, '-inf', now) -- leases and backoffs that nobody has moved to retry yet
local unended = redis.call('ZCARD', unack) - ended
-- The first ready message may be behind stale entries; the search ends after a hundred.
local oldest
for _, id in ipairs(redis.call('LRANGE', ready, 0, 99)) do
  local state, due = read(redis.call('HGET', deliveries, id) or '')
  if state == 'ready' then
    oldest = due
    break
  end
end
for _, first in ipairs(ranked_count > 0 and {0, -100} or {}) do
  for _, record in ipairs(redis.call('HMGET', deliveries, unpack(redis.call('ZRANGE', ranked, first, first + 99)))) do
    local state, due = read(record or '')
    if state == 'ranked' then oldest = math.min(oldest or due, due) end
  end
end
if due > 0 then
  local first = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]
  oldest = math.min(oldest or first, first)
end
return {
  tonumber(now),
  next_due or '-1',
  oldest or '-1',
  redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or '-1',
  redis.call('ZCARD', pending) - due,
  due + ready_count + ranked_count,
  math.max(ended + unended - backoffs, 0),
  backoffs,
  retry_count,
  redis.call('SCARD', garbage),
  redis.call('ZCARD', dead),
  redis.call('HLEN', messages),
  due + ready_count + ranked_count + retry_count + ended,
  math.max(unended - backoffs, 0),
  redis.call('HLEN', successors),
  redis.call('ZCARD', completed),
  redis.call('ZCARD', throttled),
  redis.call('ZCOUNT', beats, now, '+inf'),
  redis.call('ZCOUNT', beats, now, string.format('%.0f', now + 30000)),
  redis.call('HMGET', meta, unpack(ARGV, 2)),
}
