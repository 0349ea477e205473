-- Puts items that nobody holds back into the queue, and takes ids that are no items out of processing. Each is looked
-- at anew, so that of several cleaners one restores it.
-- KEYS: queue list, processing list, then for each id: item string, lease string
-- ARGV: short (ids: the longest list that is read as a whole), then for each: id, copies (times it was seen in
--   processing; 0 for an item that was in neither list)
-- Returns: {items restored, ids dropped}
-- Re-run: finds them restored, and answers {0, 0}.
local queue, processing = KEYS[1], KEYS[2]
local short = tonumber(ARGV[1])

-- Returns a function that says whether an id is in a list, which is looked at when that is first asked.
local function members_of(list)
  local members, long
  return function(id)
    if not members then
      members, long = {}, redis.call('LLEN', list) > short
      local read = long and {} or redis.call('LRANGE', list, 0, -1)
      for _, one in ipairs(read) do members[one] = true end
    end
    if long then return redis.call('LPOS', list, id) end
    return members[id]
  end
end

local queued, processed = members_of(queue), members_of(processing)
redis.call('LLEN', processing)
redis.call('LTRIM', queue, 0, -1) -- takes nothing away: a full Redis refuses a first write that adds
local restored, dropped = {}, 0
for n = 2, #ARGV, 2 do
  local id, copies = ARGV[n], tonumber(ARGV[n + 1])
  local alive, held = redis.call('EXISTS', KEYS[n + 1]) == 1, redis.call('EXISTS', KEYS[n + 2]) == 1
  if not alive and copies > 0 then
    dropped = dropped + (redis.call('LREM', processing, -copies, id) > 0 and 1 or 0)
  elseif alive and not held then
    local taken = copies > 0 and redis.call('LREM', processing, -copies, id) > 0
    if taken or (copies == 0 and not queued(id) and not processed(id)) then restored[#restored + 1] = id end
  end
end
if #restored > 0 then redis.call('LPUSH', queue, unpack(restored)) end
return {#restored, dropped}
