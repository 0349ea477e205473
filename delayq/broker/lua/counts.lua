-- Counts the messages in each state at one moment.
-- KEYS: pending zset, ready list, unack zset, retry list, garbage set, dead zset, messages hash, deliveries hash,
--   meta hash
-- ARGV: now (ms or '')
-- Returns: now (ms), next due (ms or -1), due of the first ready (ms or -1), next deadline (ms or -1), then counts:
--   pending, ready, active, backoff, retry, garbage, dead, messages; then the fields and values of meta
-- Re-run: reads only.
-- Uses: clock, record
local pending, ready, unack, retry, garbage, dead, messages, deliveries, meta = unpack(KEYS)
local marks = redis.call('HMGET', meta, 'stale_ready', 'stale_retry', 'backoffs')
local backoffs = tonumber(marks[3] or 0)
-- The first ready message may be behind stale entries; the search ends after a hundred.
local oldest
for _, id in ipairs(redis.call('LRANGE', ready, 0, 99)) do
  local state, due = read(redis.call('HGET', deliveries, id) or '')
  if state == 'ready' then
    oldest = due
    break
  end
end
return {
  math.floor(clock(ARGV[1]) / 1000),
  redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or '-1',
  oldest or '-1',
  redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or '-1',
  redis.call('ZCARD', pending),
  math.max(redis.call('LLEN', ready) - (marks[1] or 0), 0),
  math.max(redis.call('ZCARD', unack) - backoffs, 0),
  backoffs,
  math.max(redis.call('LLEN', retry) - (marks[2] or 0), 0),
  redis.call('SCARD', garbage),
  redis.call('ZCARD', dead),
  redis.call('HLEN', messages),
  redis.call('HGETALL', meta),
}
