-- What a group has delivered and not settled (its pending entries list): each entry has an owner, an idle time (ms) and
-- a number of deliveries. One that waits to be delivered again is owned by nobody, which is a consumer called retry.
local nobody = 'retry'

local function field(fields, name)
  for n = 1, #fields, 2 do
    if fields[n] == name then return fields[n + 1] end
  end
end

-- Returns what the server knows of a group, names and values in turn; nil if there is no such group.
local function find_group(stream, group)
  if redis.call('EXISTS', stream) == 0 then return nil end
  for _, one in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    if field(one, 'name') == group then return one end
  end
end

-- Returns whether a consumer holds an entry under this delivery: the fence before everything but an ack.
local function holds(stream, group, holder, entry, delivery)
  local found = redis.call('XPENDING', stream, group, entry, entry, 1, holder)[1]
  return found and found[4] == tonumber(delivery)
end

-- Returns the fields of an entry, names and values in turn; nil if it was deleted.
local function read(stream, entry)
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  return found and found[2]
end

-- Returns whether there are entries of the stream that the group has still before it.
local function undelivered(stream, known)
  return #redis.call('XRANGE', stream, '(' .. field(known, 'last-delivered-id'), '+', 'COUNT', 1) > 0
end

-- Returns how often a message may be delivered again; one that others have added may not say so, or say anything.
local function budget(fields, default)
  local retries = field(fields, 'retries') or ''
  return tonumber(#retries <= 15 and string.match(retries, '^%d+$') or default)
end
