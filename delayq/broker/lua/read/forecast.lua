-- Counts the pending messages that become due in each of some periods, one after the other, and the messages that are
-- redelivered in each. Counts nothing after the last message, and so makes at most two ZCOUNTs a period, and two.
-- KEYS: pending zset, unack zset, deliveries hash, limits hash
-- ARGV: start (ms, of the first period), then ends of periods (ms, excluded), at most 499
-- Returns: the limit of the queue as stored ('' for none), how many of the thousand leases and backoffs that end first are
--   leases, in how many periods all were looked at, then messages that become due per period, and entries of unack per
--   period: without these leases
-- Re-run: reads only.
-- Uses: record
local pending, unack, deliveries, limits = unpack(KEYS)
local start = ARGV[1]

local function count_periods(times, from)
  local left, counts = redis.call('ZCOUNT', times, from, '+inf'), {}
  for i = 2, #ARGV do
    local count = left > 0 and redis.call('ZCOUNT', times, from, '(' .. ARGV[i]) or 0
    from, left, counts[i - 1] = ARGV[i], left - count, count
  end
  return counts
end

local due, redelivered = count_periods(pending, start), count_periods(unack, start)
local first = redis.call('ZRANGEBYSCORE', unack, start, '(' .. ARGV[#ARGV], 'WITHSCORES', 'LIMIT', 0, 1000)
local ids, leases, period = {}, 0, 1
for n = 1, #first, 2 do ids[#ids + 1] = first[n] end
for n, record in ipairs(#ids > 0 and redis.call('HMGET', deliveries, unpack(ids)) or {}) do
  while tonumber(first[2 * n]) >= tonumber(ARGV[period + 1]) do period = period + 1 end
  if read(record or '') == 'leased' then
    leases, redelivered[period] = leases + 1, redelivered[period] - 1
  end
end
return {redis.call('HGET', limits, 'queue') or '', leases, #ids < 1000 and #due or period - 1, due, redelivered}
