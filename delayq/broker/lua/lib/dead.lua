-- The dead letter: entries id:token by time of death, their messages, and the tokens of each dead id.

-- Adds an entry. Its message is a line of counts and lengths, then reason, error, headers and payload, concatenated.
local function add_dead_entry(dead, dead_messages, dead_ids, now, id, message)
  local entry = id .. ':' .. message.token
  redis.call('ZADD', dead, string.format('%.0f', now), entry)
  redis.call('HSET', dead_messages, entry, string.format('%d %d %.0f %.0f %d %d %d\n', message.attempts,
    message.attempts - 1 + message.left, message.due, now, #message.reason, #message.error, #message.headers)
    .. message.reason .. message.error .. message.headers .. message.payload)
  local tokens = redis.call('HGET', dead_ids, id)
  redis.call('HSET', dead_ids, id, tokens and tokens .. ' ' .. message.token or message.token)
end

local function add_dead_entries(dead, dead_messages, dead_ids, now, ids, deaths)
  for _, id in ipairs(ids) do add_dead_entry(dead, dead_messages, dead_ids, now, id, deaths[id]) end
end

local function remove_dead_entries(dead, dead_messages, dead_ids, entries)
  redis.call('ZREM', dead, unpack(entries))
  redis.call('HDEL', dead_messages, unpack(entries))
  for _, entry in ipairs(entries) do
    local id, gone = string.match(entry, '^(.*):(%d+)$')
    local kept = {}
    for token in string.gmatch(redis.call('HGET', dead_ids, id) or '', '%d+') do
      if token ~= gone then table.insert(kept, token) end
    end
    if #kept > 0 then
      redis.call('HSET', dead_ids, id, table.concat(kept, ' '))
    else
      redis.call('HDEL', dead_ids, id)
    end
  end
end
