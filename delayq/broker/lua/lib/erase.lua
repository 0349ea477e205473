-- Deletes messages that have left their locations: the payload first, since an id is a message only while it has
-- one.
local function erase(messages, retries, deliveries, headers, attributes, errors, ids)
  redis.call('HDEL', messages, unpack(ids))
  redis.call('HDEL', retries, unpack(ids))
  redis.call('HDEL', deliveries, unpack(ids))
  redis.call('HDEL', headers, unpack(ids))
  redis.call('HDEL', attributes, unpack(ids))
  redis.call('HDEL', errors, unpack(ids))
end
