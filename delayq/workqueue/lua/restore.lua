-- Requeues items that nobody has leased, and removes ids without an item from processing. Each is checked again, so
-- that only one of several cleaners restores it.
-- KEYS: queue list, processing list, then for each id: item string, lease string
-- ARGV: cleaner ('' if it has leased no item), max_scanned (ids: a longer list is searched for each id), then for each:
--   id, copies (times it was seen in processing; 0 if it was in neither list)
-- Returns: {ids of the items restored, number of ids dropped}
-- Re-run: finds them restored, and returns {{}, 0}.
local queue, processing = KEYS[1], KEYS[2]
local cleaner, max_scanned = ARGV[1], tonumber(ARGV[2])

-- Returns a function that checks whether an id is in a list. Its first call reads the list.
local function members_of(list)
  local members, long
  return function(id)
    if not members then
      members, long = {}, redis.call('LLEN', list) > max_scanned
      local read = long and {} or redis.call('LRANGE', list, 0, -1)
      for _, member in ipairs(read) do members[member] = true end
    end
    if long then return redis.call('LPOS', list, id) end
    return members[id]
  end
end

local queued, processed = members_of(queue), members_of(processing)
redis.call('LLEN', processing)
redis.call('LTRIM', queue, 0, -1) -- removes nothing: a full Redis refuses a script whose first write adds
local ids, items, leases = {}, {}, {}
for n = 3, #ARGV, 2 do
  ids[#ids + 1], items[#items + 1], leases[#leases + 1] = ARGV[n], KEYS[n], KEYS[n + 1]
end
local holders, own_leases = redis.call('MGET', unpack(leases)), {}
for n, holder in ipairs(holders) do
  if cleaner ~= '' and holder == cleaner then own_leases[#own_leases + 1] = leases[n] end
end
if #own_leases > 0 then redis.call('DEL', unpack(own_leases)) end
local all_alive = redis.call('EXISTS', unpack(items)) == #items
local restored, dropped = {}, 0
for n, id in ipairs(ids) do
  local copies, is_ours = tonumber(ARGV[2 * n + 2]), cleaner ~= '' and holders[n] == cleaner
  if not all_alive and redis.call('EXISTS', items[n]) == 0 then
    if copies > 0 and redis.call('LREM', processing, -copies, id) > 0 then dropped = dropped + 1 end
  elseif copies == 0 then
    if (is_ours or not holders[n]) and not queued(id) and not processed(id) then restored[#restored + 1] = id end
  elseif is_ours or (cleaner == '' and not holders[n]) then
    if redis.call('LREM', processing, -copies, id) > 0 then restored[#restored + 1] = id end
  end
end
if #restored > 0 then redis.call('LPUSH', queue, unpack(restored)) end
return {restored, dropped}
