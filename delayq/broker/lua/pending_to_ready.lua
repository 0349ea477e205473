-- Moves due ids from pending to the ready list, earliest first, and reports when the next work is due.
-- KEYS: pending zset, ready list, unack zset, retry list, garbage set, deliveries hash, schedules zset,
--   events stream, meta hash, replies hash
-- ARGV: slot, sequence, now (ms or ''), limit (ids)
-- Returns: "moved next_due next_deadline waiting garbage now next_schedule": ids; ms or -1; ms or -1; ids in ready
--   and retry that are not stale; ids; ms; ms or -1
-- Re-run: returns the same reply; a call that moved nothing is not remembered and runs again.
-- Uses: clock, once, record, log
local pending, ready, unack, retry, garbage, deliveries, schedules, events, meta, replies = unpack(KEYS)
local slot, sequence, override, limit = unpack(ARGV, 1, 4)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local due = redis.call('ZRANGEBYSCORE', pending, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
local moved = #due / 2
local stale = redis.call('HMGET', meta, 'stale_ready', 'stale_retry')
local retrying = redis.call('LLEN', retry) - (stale[2] or 0)
local next_deadline = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or -1
local spent = redis.call('SCARD', garbage)
local next_schedule = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2] or -1
local ids, dues, records, logged = {}, {}, {}
if moved > 0 then
  for i = 1, moved do ids[i], dues[i] = due[2 * i - 1], due[2 * i] end
  local known = redis.call('HMGET', deliveries, unpack(ids))
  logged = logging(meta)
  redis.call('LLEN', ready)
  begin(replies, slot)
  redis.call('ZREMRANGEBYRANK', pending, 0, moved - 1)
  for i, id in ipairs(ids) do
    local attempts, first, token, consumer = '0', '0', '0', '-'
    if known[i] then
      local _
      _, _, attempts, first, token, consumer = read(known[i])
    end
    records[2 * i - 1], records[2 * i] = id, write('ready', due[2 * i], attempts, first, token, consumer)
  end
  redis.call('HSET', deliveries, unpack(records))
  redis.call('RPUSH', ready, unpack(ids))
end

local waiting = math.max(redis.call('LLEN', ready) - (stale[1] or 0) + retrying, 0)
local next_due = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or -1
local reply = string.format('%d %.0f %.0f %d %d %.0f %.0f', moved, next_due, next_deadline, waiting, spent, now,
  next_schedule)
if moved == 0 then return reply end
remember(replies, slot, sequence, now, reply)
log(events, meta, logged, 'promoted', now, 'ids', ids, 'dues', dues)
return reply
