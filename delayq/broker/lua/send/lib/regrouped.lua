-- Stores groups that have changed: see `group`.

-- Looks at the types of what storing groups writes, since nothing may be written before.
local function look_at_groups(retries, headers, successors, gathered)
  redis.call('HLEN', gathered)
  if not some_begin then return end
  redis.call('HLEN', retries)
  redis.call('HLEN', headers)
  redis.call('HLEN', successors)
end

-- Stores the groups that have changed. Adds before it removes, as a send does: a full Redis must refuse its first write.
local function store_groups(pending, retries, messages, headers, attributes, successors, gathered, meta, wake)
  local dues, first_due, texts, after = {}, math.huge, {}, {}
  for _, one in ipairs(changed_groups) do
    local id, text = one.id, group_text(one)
    if one.status == '6' then
      local due = one.was_due and one.before or one.next_due
      after[#after + 1], after[#after + 2] = id, successor_record(due, one.retries, one.headers, text, '')
    else
      texts[#texts + 1], texts[#texts + 2] = id, text
      if not one.was_due then
        dues[#dues + 1], dues[#dues + 2], first_due = one.next_due, id, math.min(first_due, one.next_due)
      end
    end
  end
  if #dues > 0 then enter(pending, wake, dues, first_due) end
  if #new_entries > 0 then redis.call('HSET', gathered, unpack(new_entries)) end
  if #texts > 0 then redis.call('HSET', attributes, unpack(texts)) end
  if #after > 0 then redis.call('HSET', successors, unpack(after)) end
  for _, one in ipairs(new_groups > 0 and changed_groups or {}) do
    if one.status == '1' then
      redis.call('HSET', retries, one.id, one.retries)
      if one.headers ~= '' then redis.call('HSET', headers, one.id, one.headers) end
      redis.call('HSET', messages, one.id, '')
    end
  end
  if new_groups > 0 then increase(meta, 'sent', new_groups) end
  if not some_begin then return end
  prioritized, newest = true, true -- what is due is promoted first then, and what it has gathered becomes its payload
  note_attributes(meta)
end

-- Logs the groups that are new, and those whose due times have changed.
local function log_groups(events, meta, logged, at_once)
  for _, status in ipairs(logged and {'1', '7'} or {}) do
    local ids, dues, left = {}, {}, {}
    for _, one in ipairs(changed_groups) do
      if one.status == status and not one.was_due then
        ids[#ids + 1], dues[#dues + 1], left[#left + 1] = one.id, one.next_due, one.retries
      end
    end
    log(events, meta, logged, status == '1' and 'sent' or 'replaced', at_once, 'ids', ids, 'dues', dues, 'retries', left)
  end
end
