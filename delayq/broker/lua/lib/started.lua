-- A consumer that reports starts has a mark in the record: '?' after a claim, '!' after a claim of this message alone,
-- '+' once the callback has started. Only with '+', or without a mark, is a lease that expires charged. With a mark the
-- message is then claimed alone, so that one that kills its consumers takes no others with it.
local function mark_of(consumer)
  return string.match(consumer, ' ([?!+])$')
end

local function unmarked(consumer)
  return (string.gsub(consumer, ' [?!+]$', ''))
end

local function marked(consumer, mark)
  return unmarked(consumer) .. ' ' .. mark
end

-- Returns entries that were popped from a list to its head, from the one at `first` on.
local function put_back(list, popped, first)
  local back = {}
  for i = #popped, first, -1 do back[#back + 1] = popped[i] end
  if #back > 0 then redis.call('LPUSH', list, unpack(back)) end
end
