-- What the first attributes change: the schema of the queue is even from then on. From the first message with a priority
-- on, meta holds the head start of a priority (ms) as well, and what is due is ranked: a minute, if none was set before.
local prioritized, newest = false, false

local function note_kinds(text)
  text = ' ' .. text
  prioritized = prioritized or string.find(text, ' priority=', 1, true)
  newest = newest or string.find(text, ' hours=', 1, true)
end

local function note_attributes(meta)
  note_schema(meta, newest)
  if prioritized then redis.call('HSETNX', meta, 'priority_step', '60000') end
end
