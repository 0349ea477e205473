-- Messages that are to have a member in the index latest and have none.

-- Returns the attributes of messages by their ids, and the due times (ms) of those that lack their member.
local function find_unindexed(latest, pending, messages, deliveries, attributes, ids)
  local texts, unindexed = {}, {}
  redis.call('ZCARD', latest)
  for n, text in ipairs(attributes_to_index(attributes, ids)) do
    local id = ids[n]
    local lives = is_of_latest(text) and redis.call('HEXISTS', messages, id) == 1
    local due = lives and due_now(pending, deliveries, id)
    if due and not redis.call('ZSCORE', latest, member_of(id, due)) then unindexed[id] = due end
    texts[id] = text
  end
  return texts, unindexed
end
