-- Results whose time is over. There is none while the schema is odd.

-- Looks at the types of what is written, before the first write.
local function look_at_results(completed, results, ends, schema)
  if not has_attributes(schema) then return end
  redis.call('ZCARD', completed)
  redis.call('HLEN', results)
  redis.call('XLEN', ends)
end

-- For so long (ms) an end can be read. Whoever is slower looks at its ids again, as it does when it notes them anew.
local READABLE = 60000

-- Deletes results whose time is over, up to a limit, what was noted of processes that wait no more, and old ends. Ends go
-- by their age alone: what this script has announced is read after it. Lets the other results last. Returns how many whose
-- time is over are left.
local function forget_results(completed, results, waited, ends, schema, now, limit)
  if not has_attributes(schema) then return 0 end
  local at = string.format('%.0f', now)
  redis.call('ZREMRANGEBYSCORE', waited, '-inf', '(' .. at)
  redis.call('XTRIM', ends, 'MINID', string.format('%.0f', clock('') / 1000 - READABLE))
  local expired = redis.call('ZRANGEBYSCORE', completed, '-inf', at, 'LIMIT', 0, limit)
  if #expired > 0 then
    redis.call('ZREM', completed, unpack(expired))
    redis.call('HDEL', results, unpack(expired))
  end
  let_all_last(now, 0, completed, results)
  return #expired == 0 and 0 or redis.call('ZCOUNT', completed, '-inf', at)
end
