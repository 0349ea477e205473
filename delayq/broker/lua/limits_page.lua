-- Reads a page of the limits of the queue, with how many messages each holds back and how many run in its places.
-- KEYS: limits hash, throttled zset, running zset, unack zset, meta hash
-- ARGV: now (ms or ''), cursor (0 at the start), limit (limits)
-- Returns: now (ms), cursor of the next page (0 at the end), then per limit: scope, the limit as stored, throttled, running
-- Re-run: reads only.
-- Uses: clock, limit
local limits, throttled, running, unack, meta = unpack(KEYS)
local override, cursor, limit = unpack(ARGV, 1, 3)
local page = redis.call('HSCAN', limits, cursor, 'COUNT', limit)
local reply = {math.floor(clock(override) / 1000), page[1]}
for n = 1, #page[2], 2 do
  local scope, text = page[2][n], page[2][n + 1]
  local one = read_limit(text)
  if one then
    local low, high = line_of(one.number)
    reply[#reply + 1], reply[#reply + 2] = scope, text
    if one.number == 0 then
      reply[#reply + 1], reply[#reply + 2] = 0, redis.call('ZCARD', unack) - (redis.call('HGET', meta, 'backoffs') or 0)
    else
      reply[#reply + 1] = redis.call('ZCOUNT', throttled, low, high)
      reply[#reply + 1] = redis.call('ZCOUNT', running, one.number, one.number)
    end
  end
end
return reply
