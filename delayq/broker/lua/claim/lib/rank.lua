-- Ranks: what is due is delivered by its due time, less a head start of priority * step. A message with a priority
-- waits, once due, in the zset ranked, scored by that time (ms); all others wait in ready. The step (ms) is in meta from
-- the first send with a priority on: without one, no script reads attributes for it.

local head_starts = {}

-- Returns the rank of a message with these attributes (a text); nil or false for one without a priority. Many messages
-- have the same text, so the head start (ms) of each text is worked out once.
local function rank_of(text, due, step)
  if not text then return nil end
  local head_start = head_starts[text]
  if head_start == nil then
    local priority = string.match(' ' .. text, ' priority=(%-?%d+)')
    head_start = priority and #priority < 10 and priority * (whole(step) or 60000) or false
    head_starts[text] = head_start
  end
  return head_start and due - head_start
end

-- Returns the same as a text; it is worked out once for each text of messages in a row that are due at the same time.
local ranked_due, ranks_then
local function rank_text(text, due, step)
  if due ~= ranked_due then ranked_due, ranks_then = due, {} end
  if ranks_then[text] == nil then
    local rank = rank_of(text, due, step)
    ranks_then[text] = rank and string.format('%.0f', rank) or false
  end
  return ranks_then[text]
end

-- Returns the attributes of messages, as delayq writes them: short texts. None without a step, if no priority counts.
local function attributes_to_rank(attributes, step, ids)
  return step and #ids > 0 and redis.call('HMGET', attributes, unpack(ids)) or {}
end
