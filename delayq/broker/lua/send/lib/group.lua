-- What a send does to groups: see `gathered`.

-- Returns a group without entries, of a series with this name.
local function new_group(text, series, limit)
  local kept = text .. ' '
  return {kept = kept, most = most_of(kept), series = series, first = 0, count = 0, last = 0,
    size = 1, limit = limit}
end

-- Counts an entry of a size, in a batch that begins if the last one is full. That is due after the pause, at the latest
-- so long after its first entry ('' for no limit), or at once if it is full. Returns when the first batch is due (ms).
local function add_entry(one, size, at_once, paused, at_most)
  if one.count == 0 or one.last >= one.most or one.last > 0 and one.size + size > tonumber(one.limit) then
    one.last, one.size, one.since = 0, 1, at_once
  end
  one.count, one.last, one.size, one.due = one.count + 1, one.last + 1, one.size + size, paused
  if at_most ~= '' and one.since + at_most < tonumber(paused) then one.due = string.format('%.0f', one.since + at_most) end
  if one.last >= one.most then one.due = at_once end
  return one.count > one.last and at_once or one.due
end

-- Deletes entries of no group, of a few: those that were cancelled or replaced leave theirs behind.
local function delete_stray(gathered, attributes, successors)
  for _, field in ipairs(redis.call('HRANDFIELD', gathered, 2)) do
    local id, series, number = string.match(field, '^(.*)\n(%d+)\n(%d+)$')
    local one = id and (group_of(read_payload(attributes, id)) or group_of(attributes_in(read_payload(successors, id))))
    local live = one and one.series == series and number - one.first >= 0 and number - one.first < one.count
    if not live then redis.call('HDEL', gathered, field) end
  end
end

-- Returns what the event log tells of the groups with a status whose due times are new: ids, due times and retries.
local function told_of(groups, status)
  local ids, dues, left = {}, {}, {}
  for _, one in ipairs(groups) do
    if one.status == status and not one.was_due then
      ids[#ids + 1], dues[#dues + 1], left[#left + 1] = one.id, one.next_due, one.retries
    end
  end
  return ids, dues, left
end
