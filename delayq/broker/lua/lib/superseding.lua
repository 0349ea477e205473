-- What the members of the index latest say: see the fragment latest.

-- Returns the prefix, due time (ms, 15 digits) and id of a member; no id for a mark.
local function member_parts(member)
  return string.match(member, '^(%S*) (%d+) ?(%S*)$')
end

-- Returns when a message is due (ms); nil or false if it is in no location.
local function due_now(pending, deliveries, id)
  local _, due = read(redis.call('HGET', deliveries, id) or '')
  return due or redis.call('ZSCORE', pending, id)
end

-- Returns whether the message of a member is still in the queue, and due then; a mark has none.
local function is_current(pending, deliveries, due, id)
  local now_due = id and due_now(pending, deliveries, id)
  return now_due and tonumber(now_due) == tonumber(due)
end
