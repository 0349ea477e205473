-- Each call executes once: a slot has one call at a time, and its last reply is stored with its sequence number.

-- Returns the reply to send without executing, given what is stored under the slot: that reply for a re-run, '' for a call
-- that a later one of its slot has overtaken; nil for a call to execute.
local function past_of(last, sequence)
  if not last then return nil end
  local number = string.match(last, '^%d+')
  if not number or #number > 15 then return nil end
  if sequence == number then return (string.match(last, '^%d+ %d+ (.*)$')) end
  if tonumber(sequence) < tonumber(number) then return '' end
  return nil
end

local function answered(meta, slot, sequence)
  return past_of(redis.call('HGET', meta, slot), sequence)
end

-- Deletes the previous reply of the slot. It is the first write of a script that must work when Redis is full, unless
-- another one removes: the server refuses a script whose first write may need memory, and lets it finish after any
-- other.
local function begin(meta, slot)
  redis.call('HDEL', meta, slot)
end

-- Deletes slots that no call has used for so long (ms), of some of a hash, from a cursor on. Returns the next cursor.
local function forget_slots(hash, cursor, now, slot_ttl)
  local next_cursor, fields = unpack(redis.call('HSCAN', hash, cursor, 'COUNT', 100))
  for i = 1, #fields, 2 do
    local used = string.find(fields[i], '.', 1, true) and string.match(fields[i + 1], '^%d+ (%d+)')
    if used and now - used > tonumber(slot_ttl) then redis.call('HDEL', hash, fields[i]) end
  end
  return next_cursor
end

-- Stores the reply, with the time in whole milliseconds, which Lua writes in full, and other fields of `meta` with it.
local function remember(meta, slot, sequence, now, reply, ...)
  redis.call('HSET', meta, slot, sequence .. ' ' .. now .. ' ' .. reply, ...)
  return reply
end
