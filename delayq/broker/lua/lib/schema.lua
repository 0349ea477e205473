-- What the schema of a queue says. While it is odd, no message has had attributes. From 3 on, how often a message will be
-- retried is stored once it is not the default: most messages never fail.
local DEFAULT_RETRIES = '3'

local function has_attributes(schema) return schema ~= '1' and schema ~= '3' end

local function stores_default(schema) return schema ~= '3' and schema ~= '4' end

-- Notes that the first attributes are about to be stored.
local function note_schema(meta)
  redis.call('HSET', meta, 'schema', stores_default(redis.call('HGET', meta, 'schema')) and '2' or '4')
end

-- Returns how often these messages will be retried, as it is stored.
local function retries_of(retries, ids)
  local counts = redis.call('HMGET', retries, unpack(ids))
  for n = 1, #ids do counts[n] = counts[n] or DEFAULT_RETRIES end
  return counts
end
