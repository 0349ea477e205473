-- Each call executes once: a slot has one call at a time, and its last reply is stored with its sequence number.

-- Returns the reply to send without executing: the stored one for a re-run, '' for a call that a later one of
-- its slot has overtaken; nil for a call to execute.
local function answered(replies, slot, sequence)
  local last = redis.call('HGET', replies, slot)
  if not last then return nil end
  local number = string.match(last, '^%d+')
  if not number or #number > 15 then return nil end
  if sequence == number then return (string.match(last, '^%d+ %d+ (.*)$')) end
  if tonumber(sequence) < tonumber(number) then return '' end
  return nil
end

-- Deletes the previous reply of the slot. It is the first write of a script that must work when Redis is full, unless
-- another one removes: the server refuses a script whose first write may need memory, and lets it finish after any
-- other.
local function begin(replies, slot)
  redis.call('HDEL', replies, slot)
end

-- Stores the reply, with the time in whole milliseconds, which Lua writes in full.
local function remember(replies, slot, sequence, now, reply)
  redis.call('HSET', replies, slot, sequence .. ' ' .. now .. ' ' .. reply)
  return reply
end
