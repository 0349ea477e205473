-- The dead letter: entries id:token by time of death, their messages, and the tokens of each dead id.

-- Adds an entry. Its message is a line of counts and lengths, then reason, error, headers, attributes and payload,
-- concatenated. The length of the attributes is left out if there are none.
local function add_dead_entry(dead, dead_messages, dead_ids, now, id, message)
  local entry = id .. ':' .. message.token
  redis.call('ZADD', dead, string.format('%.0f', now), entry)
  redis.call('HSET', dead_messages, entry, string.format('%d %d %.0f %.0f %d %d %d', message.attempts,
    math.max(message.attempts - 1 + message.left, 0), message.due, now, #message.reason, #message.error, #message.headers)
    .. (message.attributes ~= '' and ' ' .. #message.attributes or '') .. '\n'
    .. message.reason .. message.error .. message.headers .. message.attributes .. message.payload)
  local tokens = redis.call('HGET', dead_ids, id)
  redis.call('HSET', dead_ids, id, tokens and tokens .. ' ' .. message.token or message.token)
end

local function add_dead_entries(dead, dead_messages, dead_ids, now, ids, deaths)
  for _, id in ipairs(ids) do add_dead_entry(dead, dead_messages, dead_ids, now, id, deaths[id]) end
end

-- Removes entries, also what another program has added without a token. The tokens of an id are read and written once,
-- however many of its entries are removed. They are in the order of the deaths, so that the oldest are at the start of
-- the text.
local function remove_dead_entries(dead, dead_messages, dead_ids, entries)
  redis.call('ZREM', dead, unpack(entries))
  redis.call('HDEL', dead_messages, unpack(entries))
  local ids, gone, left = {}, {}, {}
  for _, entry in ipairs(entries) do
    local id, token = string.match(entry, '^(.*):(%d+)$')
    if id then
      if not gone[id] then gone[id], left[id], ids[#ids + 1] = {}, 0, id end
      gone[id][token], left[id] = true, left[id] + 1
    end
  end
  for _, id in ipairs(ids) do
    local tokens, kept, rest = redis.call('HGET', dead_ids, id) or '', {}, 1
    for token, next_token in string.gmatch(tokens, '(%d+) ?()') do
      rest = next_token
      if gone[id][token] then left[id] = left[id] - 1 else kept[#kept + 1] = token end
      if left[id] == 0 then break end
    end
    if rest <= #tokens then kept[#kept + 1] = string.sub(tokens, rest) end
    if #kept > 0 then
      redis.call('HSET', dead_ids, id, table.concat(kept, ' '))
    else
      redis.call('HDEL', dead_ids, id)
    end
  end
end
