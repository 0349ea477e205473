-- What new entries do to groups, see `gathered`: each is added to the message with the id of its group that gathers. Beside
-- one that gathers no more, since it waits to be delivered, runs or dies, it is added to the successor, so that one batch
-- of a group is delivered at a time. A batch that is full is due. The first entry of a message decides its retries,
-- headers and attributes.
local changed_groups, group_by_id, new_entries, new_groups, some_begin = {}, {}, {}, 0, false

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

-- Returns the group with an id: what gathers, else the successor of what does not, else a new one.
local function group_for(messages, attributes, successors, id, retry_count, header_text, text, series, limit)
  if group_by_id[id] then return group_by_id[id] end
  local one = group_of(read_payload(attributes, id))
  if one then
    one.status = '7'
  elseif not read_payload(messages, id) then
    one, new_groups = new_group(text, series, limit), new_groups + 1
    one.status = '1'
  else
    inherit(id, read_payload(successors, id))
    local n = #heirs.ids
    one = heirs.ids[n] == id and group_of(heirs.attributes[n])
    if one then retry_count, header_text, one.before = heirs.retries[n], heirs.headers[n], heirs.dues[n] end
    one = one or new_group(text, series, limit)
    one.status = '6'
    for _, column in pairs(heirs) do column[n] = nil end -- it was only read
  end
  some_begin, one.was_due = some_begin or one.count == 0, one.count > one.last or one.last >= one.most
  one.id, one.retries, one.headers = id, retry_count, header_text
  group_by_id[id], changed_groups[#changed_groups + 1] = one, one
  return one
end

-- Adds an entry to the group that is its; returns what became of it, see `collect`.
local function gather(one, entry, at_once, paused, at_most)
  local status, n = one.status == '1' and one.count > 0 and '7' or one.status, #new_entries
  one.next_due = add_entry(one, #entry, at_once, paused, at_most)
  new_entries[n + 1], new_entries[n + 2] = entry_field(one.id, one.series, one.first + one.count - 1), entry
  return status .. ' ' .. one.due
end
