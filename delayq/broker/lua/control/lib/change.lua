-- What is noted of messages that may be in the cold tier: how they come back. Only while a queue has some there.
local changed = {}

local function look_at_changes(changes, meta, schema)
  if schema ~= '8' or (whole(redis.call('HGET', meta, 'cold')) or 0) == 0 then return false end
  redis.call('HLEN', changes)
  return true
end

-- Returns how a message comes back: '-' for not at all, or its due time (ms); nil if nothing is noted.
local function change_of(changes, id)
  return string.match(redis.call('HGET', changes, id) or '', '^%S+')
end

local function change(id, how, now)
  changed[#changed + 1], changed[#changed + 2] = id, string.format('%s %.0f', how, now)
end

local function note_changes(changes)
  if #changed > 0 then redis.call('HSET', changes, unpack(changed)) end
end
