-- Messages that have moved from another partition, as they were read from their batch.

-- Puts them where they waited: into pending by their due times, into backoff, or into garbage.
local function place_moved(pending, unack, garbage, meta, wake, stored)
  local dues, first_due, waits, backing, spent = {}, math.huge, {}, {}, {}
  for _, one in ipairs(stored) do
    if one.state == 'backoff' then
      backing[#backing + 1], waits[#waits + 1], waits[#waits + 2] = one.id, one.at, one.id
    elseif one.state == 'garbage' then
      spent[#spent + 1] = one.id
    else
      dues[#dues + 1], dues[#dues + 2], first_due = one.at, one.id, math.min(first_due, one.at)
    end
  end
  if #dues > 0 then enter(pending, wake, dues, first_due) end
  if #waits > 0 then
    redis.call('ZADD', unack, unpack(waits))
    increase(meta, 'backoffs', #backing)
    signal_if_first(wake, unack, backing)
  end
  if #spent > 0 then redis.call('SADD', garbage, unpack(spent)) end
end

-- Stores what they have in a hash; all have a payload, the empty one too.
local function store_column(hash, stored, name)
  local cells = {}
  for _, one in ipairs(stored) do
    if one[name] ~= '' or name == 'payload' then cells[#cells + 1], cells[#cells + 2] = one.id, one[name] end
  end
  if #cells > 0 then redis.call('HSET', hash, unpack(cells)) end
end
