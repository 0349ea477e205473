-- A consumer that reports starts has a mark in the record: '?' after a claim, '!' after a claim of this message alone,
-- '-' if it is asked to return the message, '+' once the callback has started. Only with '+', or without a mark, is a
-- lease that expires charged. With a mark the message is then claimed alone, so that one that kills its consumers takes
-- no others with it.
local function mark_of(consumer)
  return string.match(consumer, ' ([?!+-])$', -2)
end

local function unmarked(consumer)
  return (string.gsub(consumer, ' [?!+-]$', ''))
end

local function marked(consumer, mark)
  return unmarked(consumer) .. ' ' .. mark
end

-- Returns how many entries of a list to pop for a claim of n: one if the first is to be claimed alone.
local function at_once(list, deliveries, n)
  local first = redis.call('LINDEX', list, 0)
  local record = first and redis.call('HGET', deliveries, first)
  return record and mark_of(record) and 1 or n
end

-- Returns entries that were popped from a list to its head, from the one at `first` on.
local function put_back(list, popped, first)
  local back = {}
  for i = #popped, first, -1 do back[#back + 1] = popped[i] end
  if #back > 0 then redis.call('LPUSH', list, unpack(back)) end
end
