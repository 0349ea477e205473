-- The pending entries list of a group: its unacknowledged entries, each with a consumer, an idle time (ms) and a number
-- of deliveries. An entry that waits for a retry belongs to `nobody`, a consumer with the name retry.
local nobody = 'retry'

local function field(fields, name)
  for n = 1, #fields, 2 do
    if fields[n] == name then return fields[n + 1] end
  end
end

-- Returns the XINFO row of a group, as a flat list of names and values; nil if there is no such group.
local function find_group(stream, group)
  if redis.call('EXISTS', stream) == 0 then return nil end
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    if field(row, 'name') == group then return row end
  end
end

-- Returns whether a consumer's name is one of ours for what was not handed to a callback: read ahead, or by a blocking read.
local function is_unstarted(name)
  local ending = string.match(name, ':%d+:%d+T%d+Z%-%x+(.*)$')
  return ending == ' ?' or ending == '.wait'
end

-- Returns under which name a consumer has leased an entry with this delivery, and the idle time (ms): under its own, or
-- under the one for what it has not started. Nil if it has not. Every script but ack checks this first.
local function holds(stream, group, consumer, entry, delivery)
  local found = redis.call('XPENDING', stream, group, entry, entry, 1)[1]
  local name = found and found[4] == tonumber(delivery) and found[2]
  if name and (name == consumer or name == consumer .. ' ?') then return name, found[3] end
end

-- Returns whether the stream has entries that the group has not read yet.
local function undelivered(stream, info)
  return #redis.call('XRANGE', stream, '(' .. field(info, 'last-delivered-id'), '+', 'COUNT', 1) > 0
end

-- Returns how often a message may be retried; a message of another client may have no such field, or an invalid one.
local function budget(fields, default)
  local retries = field(fields, 'retries') or ''
  return tonumber(#retries <= 15 and string.match(retries, '^%d+$') or default)
end
