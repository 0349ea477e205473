-- Places: what runs under a limit that says how many may. They are counted, and given back, only while `limited` in meta
-- begins with "running". With a space after it, messages may also have places of keys, see `key`.
local keyed = false

-- Looks at the types of what gives places back, since nothing may be written before; returns whether there are any.
local function look_at_places(running, gates, wake, setting)
  if string.sub(setting or '', 1, 7) ~= 'running' then return false end
  keyed = #setting > 7
  redis.call('ZCARD', running)
  redis.call('ZCARD', gates)
  redis.call('LLEN', wake)
  return true
end

-- Returns ids with the members of their places of keys; without those that a message keeps which `lives`.
local function with_keys(running, ids, lives)
  local members, places = {}, {unpack(ids)}
  for n, id in ipairs(ids) do members[n] = ' ' .. id end
  for n, place in ipairs(#ids > 0 and redis.call('ZMSCORE', running, unpack(members)) or {}) do
    if place and not (lives and place % 2 == 1) then places[#places + 1] = members[n] end
  end
  return places
end

-- Gives back the places of ids whose leases have ended, or which have ended unless they `live`, opens the gates of what
-- waits for them, and wakes a consumer if it has opened one.
local function free_places(running, gates, wake, ids, lives)
  if keyed then ids = with_keys(running, ids, lives) end
  if #ids > 0 and redis.call('ZCARD', gates) == 0 then -- nobody waits
    redis.call('ZREM', running, unpack(ids))
    return
  end
  local open, seen = {0, '0'}, {}
  for n, number in ipairs(#ids > 0 and redis.call('ZMSCORE', running, unpack(ids)) or {}) do
    if number and string.sub(ids[n], 1, 1) == ' ' then number = string.format('%.0f', number - number % 2) end
    if number and not seen[number] then
      seen[number], open[#open + 1], open[#open + 2] = true, 0, number
    end
  end
  if #open > 2 then redis.call('ZREM', running, unpack(ids)) end
  if #ids > 0 and redis.call('ZADD', gates, 'XX', 'CH', unpack(open)) > 0 then signal(wake) end
end
