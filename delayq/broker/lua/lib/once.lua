-- Each call executes once: a slot holds one call at a time, and its last answer is remembered under its sequence.

-- Returns the answer to give without executing: the remembered one for a re-run, '' for a call that a later one of
-- its slot has overtaken; nil for a call to execute.
local function answered(replies, slot, sequence)
  local last = redis.call('HGET', replies, slot)
  if not last then return nil end
  local number, answer = string.match(last, '^(%d+) %d+ (.*)$')
  if sequence == number then return answer end
  if tonumber(sequence) < tonumber(number) then return '' end
  return nil
end

-- Forgets the previous call of the slot. Begins the writes of every script that must run through when Redis is full:
-- the server refuses a script at its first write if that one may grow memory, and lets it finish after any other.
local function begin(replies, slot)
  redis.call('HDEL', replies, slot)
end

local function remember(replies, slot, sequence, now, answer)
  redis.call('HSET', replies, slot, string.format('%s %.0f %s', sequence, now, answer))
  return answer
end
