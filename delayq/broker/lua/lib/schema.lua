-- What the schema of a queue says. While it is odd, no message has had attributes. From 3 on, how often a message will be
-- retried is stored once it is not the default: most messages never fail. 6 is that of a queue with groups, hours, or
-- templates of limits: a worker that does not know them would lose what gathers, or deliver what is to wait. 7 is that of a
-- queue with partitions, which itself is one while its messages move to others, or from them. 8 is that of a queue with a
-- cold tier: who does not know it would lose cancels of what is cold.
local DEFAULT_RETRIES = '3'

local function has_attributes(schema) return schema ~= '1' and schema ~= '3' end

local function stores_default(schema) return schema ~= '3' and schema ~= '4' and schema ~= '6' and schema ~= '7'
  and schema ~= '8' end

-- Notes that the first attributes are about to be stored, or what only the newest schema has.
local function note_schema(meta, newest)
  local schema = redis.call('HGET', meta, 'schema')
  if schema == '7' or schema == '8' then return end
  redis.call('HSET', meta, 'schema', (newest or schema == '6') and '6' or stores_default(schema) and '2' or '4')
end

-- Returns how often these messages will be retried, as it is stored.
local function retries_of(retries, ids)
  local counts = redis.call('HMGET', retries, unpack(ids))
  for n = 1, #ids do counts[n] = counts[n] or DEFAULT_RETRIES end
  return counts
end
