-- What is left in the index latest of prefixes that nobody uses any more.

-- Returns whether there is an index, which is never while the schema is 1. Then looks at the type of what is read, since
-- nothing may be written before.
local function look_at_latest(latest, pending, schema)
  if schema == '1' or redis.call('ZCARD', latest) == 0 then return false end
  redis.call('ZCARD', pending)
  return true
end

-- Removes members that are older than a day: those whose messages have ended, or are due at another time, and marks that
-- supersede no message. Looks at a hundred at a time, from where it ended before.
local function forget_latest(latest, pending, deliveries, meta, cursor, now)
  local page = redis.call('ZRANGEBYLEX', latest, cursor and '(' .. cursor or '-', '+', 'LIMIT', 0, 100)
  local outdated = {}
  for _, member in ipairs(page) do
    local prefix, due, id = member_parts(member)
    local is_old = not prefix or tonumber(due) < now - 86400000
    if is_old and id ~= '' and not is_current(pending, deliveries, due, id) then
      outdated[#outdated + 1] = member
    elseif is_old and id == '' then
      local before = redis.call('ZREVRANGEBYLEX', latest, '(' .. member, '[' .. prefix .. ' ', 'LIMIT', 0, 1)
      if #before == 0 then outdated[#outdated + 1] = member end
    end
  end
  if #outdated > 0 then redis.call('ZREM', latest, unpack(outdated)) end
  if #page == 100 then
    redis.call('HSET', meta, 'latest_cursor', page[100])
  else
    redis.call('HDEL', meta, 'latest_cursor')
  end
end
