-- A consumer that reports starts has a mark in the record: '?' after a claim, '!' after a claim of this message alone,
-- '-' if it is asked to return the message, '+' once the callback has started. Only with '+', or without a mark, is a
-- lease that expires charged. With a mark the message is then claimed alone, so that one that kills its consumers takes
-- no others with it. In the place of any of them, '*' asks whoever holds the message to stop: unless it is acknowledged
-- it waits in garbage as soon as it is not leased any more, uncharged, and is collected as cancelled.
local function mark_of(consumer)
  return string.match(consumer, ' ([?!+*-])$', -2)
end

local function unmarked(consumer)
  return (string.gsub(consumer, ' [?!+*-]$', ''))
end

local function marked(consumer, mark)
  return unmarked(consumer) .. ' ' .. mark
end
