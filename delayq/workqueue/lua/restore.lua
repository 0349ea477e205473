-- Puts items that nobody holds back into the queue, and takes ids that are no items out of processing. Each is looked
-- at anew, so that of several cleaners one restores it.
-- KEYS: queue list, processing list, then for each id: item string, lease string
-- ARGV: cleaner ('' if it has held nothing), short (ids: the longest list that is read as a whole), then for each: id,
--   copies (times it was seen in processing; 0 for one that was in neither list)
-- Returns: {items restored, ids dropped}
-- Re-run: finds them restored, and answers {0, 0}.
local queue, processing = KEYS[1], KEYS[2]
local cleaner, short = ARGV[1], tonumber(ARGV[2])

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
local ids, items, leases = {}, {}, {}
for n = 3, #ARGV, 2 do
  ids[#ids + 1], items[#items + 1], leases[#leases + 1] = ARGV[n], KEYS[n], KEYS[n + 1]
end
local holders, held = redis.call('MGET', unpack(leases)), {}
for n, holder in ipairs(holders) do
  if cleaner ~= '' and holder == cleaner then held[#held + 1] = leases[n] end
end
if #held > 0 then redis.call('DEL', unpack(held)) end
local all_alive = redis.call('EXISTS', unpack(items)) == #items
local restored, dropped = {}, 0
for n, id in ipairs(ids) do
  local copies, ours = tonumber(ARGV[2 * n + 2]), cleaner ~= '' and holders[n] == cleaner
  if not all_alive and redis.call('EXISTS', items[n]) == 0 then
    if copies > 0 and redis.call('LREM', processing, -copies, id) > 0 then dropped = dropped + 1 end
  elseif copies == 0 then
    if (ours or not holders[n]) and not queued(id) and not processed(id) then restored[#restored + 1] = id end
  elseif ours or (cleaner == '' and not holders[n]) then
    if redis.call('LREM', processing, -copies, id) > 0 then restored[#restored + 1] = id end
  end
end
if #restored > 0 then redis.call('LPUSH', queue, unpack(restored)) end
return {#restored, dropped}
