-- Places: what runs under a limit that says how many may. They are counted, and given back, only while `limited` in meta
-- is "running".

-- Looks at the types of what gives places back, since nothing may be written before; returns whether there are any.
local function look_at_places(running, gates, wake, setting)
  if setting ~= 'running' then return false end
  redis.call('ZCARD', running)
  redis.call('ZCARD', gates)
  redis.call('LLEN', wake)
  return true
end

-- Gives back the places of ids whose leases have ended, opens the gates of what waits for them, and wakes a consumer if
-- it has opened one.
local function free_places(running, gates, wake, ids)
  if #ids > 0 and redis.call('ZCARD', gates) == 0 then -- nobody waits
    redis.call('ZREM', running, unpack(ids))
    return
  end
  local open, seen = {0, '0'}, {}
  for _, number in ipairs(#ids > 0 and redis.call('ZMSCORE', running, unpack(ids)) or {}) do
    if number and not seen[number] then
      seen[number], open[#open + 1], open[#open + 2] = true, 0, number
    end
  end
  if #open > 2 then redis.call('ZREM', running, unpack(ids)) end
  if #ids > 0 and redis.call('ZADD', gates, 'XX', 'CH', unpack(open)) > 0 then signal(wake) end
end
