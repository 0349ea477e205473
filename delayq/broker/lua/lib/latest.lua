-- Messages of which only the latest due is delivered, by the prefix of their ids, which ends with the last colon. The zset
-- latest has a member "prefix due id" of each, all with the same score, so that a prefix is a range in the order of due
-- times. A member "prefix due" is a mark: what is due before has been superseded by a message that is due then. Members of
-- messages that have ended, or are due at another time, are removed by whoever finds them.
local noted = {}

-- Returns whether attributes (a text; false for none) say that a message is one of these.
local function is_of_latest(text)
  return text and string.find(' ' .. text, ' latest=1')
end

local function prefix_of(id)
  return string.match(id, '^.*:') or ''
end

-- Returns the first part of a member: for equal prefixes it sorts as the times (ms).
local function mark_at(prefix, due)
  return string.format('%s %015.0f', prefix, due)
end

local function member_of(id, due)
  return mark_at(prefix_of(id), due) .. ' ' .. id
end

-- Returns the attributes of messages, as delayq writes them: short texts.
local function attributes_to_index(attributes, ids)
  return #ids > 0 and redis.call('HMGET', attributes, unpack(ids)) or {}
end

-- Notes a message that is about to be stored or moved, if it is one of these, and looks at the type of what is written.
local function note_due(latest, id, due, text)
  if not is_of_latest(text) then return end
  redis.call('ZCARD', latest)
  noted[#noted + 1], noted[#noted + 2] = 0, member_of(id, due)
end

local function index_dues(latest)
  if #noted > 0 then redis.call('ZADD', latest, unpack(noted)) end
end
