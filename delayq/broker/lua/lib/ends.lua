-- Ends of messages that processes wait for. A process notes the ids it waits for, and reads a stream of those that have
-- ended. Only messages with retention have results, and none has while the schema is odd.

-- Returns whether anybody waits. Then looks at the type of the stream, since nothing may be written before.
local function is_waited_for(waited, ends, schema)
  if not has_attributes(schema) or redis.call('ZCARD', waited) == 0 then return false end
  redis.call('XLEN', ends)
  return true
end

-- An entry that cannot be written changes nothing else: whoever waits looks again from time to time.
local function append(ends, ids)
  redis.pcall('XADD', ends, 'MAXLEN', '~', '1000', '*', 'ids', ids)
end

-- Tells those who wait for any of these ids that they have ended; the stream keeps about the last thousand calls.
local function announce(waited, ends, ids)
  local told = {}
  for n, noted in ipairs(redis.call('ZMSCORE', waited, unpack(ids))) do
    if noted then told[#told + 1] = ids[n] end
  end
  if #told == 0 then return end
  redis.call('ZREM', waited, unpack(told))
  append(ends, table.concat(told, ' '))
end
