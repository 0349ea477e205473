-- Groups: a message that gathers has an empty payload, and its entries are in `gathered`, each under its id, the series of
-- the group and a number. Its attributes end in "gathers=series:first:count:last:size:since:due:limit": the number of the
-- first entry and how many there are; how many, and bytes, are in the last batch, when that began and is due (ms); and the
-- bytes that a batch may have. The batches before the last are full, and due.
local taken = {}

-- Returns how many entries a batch may have, by the attributes of its message: a foreign number must not be looped to.
local function most_of(kept)
  return math.min(tonumber(string.match(' ' .. kept, ' collect=(%d+)') or 1), 1000)
end

-- Returns a group by these attributes (a text); nil for a message that gathers nothing.
local function group_of(text)
  local at = text and string.find(text, ' gathers=', 1, true)
  if not at then return nil end
  local series, first, count, last, size, since, due, limit =
    string.match(text, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)$', at + 9)
  if not series then return nil end
  local kept = string.sub(text, 1, at)
  return {kept = kept, most = most_of(kept), series = series, first = tonumber(first),
    count = tonumber(count), last = tonumber(last), size = tonumber(size), since = since, due = due, limit = limit}
end

local function group_text(one)
  return one.kept .. 'gathers=' .. table.concat({one.series, one.first, one.count, one.last, one.size, one.since, one.due,
    one.limit}, ':')
end

-- Returns the attributes of a batch that gathers no more.
local function closed_text(one)
  return (string.gsub(one.kept, ' $', ''))
end

local function entry_field(id, series, number) return id .. '\n' .. series .. '\n' .. number end

-- Returns entries as one payload. One that begins with a comma is JSON: if all are, they are a list in JSON. Else each is
-- a netstring, its length before it.
local function framed(entries)
  local all = true
  for _, entry in ipairs(entries) do all = all and string.byte(entry) == 44 end
  if all then return '[' .. string.sub(table.concat(entries), 2) .. ']' end
  for n, entry in ipairs(entries) do
    if string.byte(entry) == 44 then entries[n] = string.format('%d:', #entry - 1) .. string.sub(entry, 2) .. ',' end
  end
  return table.concat(entries)
end

-- Returns the payload of the first batch of a group; what is left of the group is in `one` then.
local function take_batch(gathered, id, one)
  local fields, entries, size, count = {}, {}, 1, 0
  for n = 1, math.min(one.count, one.most) do fields[n] = entry_field(id, one.series, one.first + n - 1) end
  local entry_of = payloads_of(gathered, fields, #fields, 100)
  for n, field in ipairs(fields) do
    local entry = entry_of(n) or ''
    if n > 1 and size + #entry > tonumber(one.limit) then break end
    size, count, taken[#taken + 1] = size + #entry, n, field
    if entry ~= '' then entries[#entries + 1] = entry end
  end
  one.first, one.count = one.first + count, one.count - count
  return framed(entries)
end

-- Returns a payload; of a message that gathers, that of its first batch.
local function read_whole(messages, attributes, gathered, id)
  local payload = read_payload(messages, id)
  local one = payload == '' and group_of(read_payload(attributes, id))
  return one and take_batch(gathered, id, one) or payload
end
