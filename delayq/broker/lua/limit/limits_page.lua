-- Reads a page of the limits of the queue, with how many messages each holds back and how many run in its places, and with
-- what programs declare; after the limits, what they declare for a scope that has none any more.
-- KEYS: limits hash, declared hash, throttled zset, running zset, unack zset, attributes hash, meta hash
-- ARGV: now (ms or ''), cursor (0 at the start), limit (limits)
-- Returns: now (ms), cursor of the next page (0 at the end), then per limit: scope, the limit as stored ('' for none), what
--   is declared ('' for nothing), throttled, running
-- Re-run: reads only.
-- Uses: clock, numbers, limit, key
local limits, declared, throttled, running, unack, attributes, meta = unpack(KEYS)
local override, cursor, limit = unpack(ARGV, 1, 3)
local is_rest, from = string.match(cursor, '^(d?)(%d+)$')
is_rest = is_rest == 'd'
local page = is_rest and redis.call('HSCAN', declared, from, 'COUNT', limit) or redis.call('HSCAN', limits, from, 'COUNT', limit)
local next_cursor = page[1]
if is_rest and next_cursor ~= '0' or not is_rest and next_cursor == '0' and redis.call('HLEN', declared) > 0 then
  next_cursor = 'd' .. next_cursor
end
local reply = {math.floor(clock(override) / 1000), next_cursor}
for n = 1, #page[2], 2 do
  local scope, text = page[2][n], page[2][n + 1]
  local one = not is_rest and read_limit(text)
  if one then
    local prefix = prefix_of(scope)
    local said, low, high = redis.call('HGET', declared, scope) or '', line_of(one.number)
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = scope, text, said
    if one.number == 0 then
      reply[#reply + 1], reply[#reply + 2] = 0, redis.call('ZCARD', unack) - (whole(redis.call('HGET', meta, 'backoffs')) or 0)
    else
      reply[#reply + 1] = redis.call('ZCOUNT', throttled, low, high)
      reply[#reply + 1] = prefix and taken_by(running, attributes, prefix) or redis.call('ZCOUNT', running, one.number, one.number)
    end
  elseif is_rest and not redis.call('HGET', limits, scope) then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3], reply[#reply + 4], reply[#reply + 5] = scope, '', text, 0, 0
  end
end
return reply
