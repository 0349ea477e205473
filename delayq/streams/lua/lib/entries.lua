-- Entries are read within a budget of bytes, so that no call keeps the server busy for long: a script stops after the
-- entries with which it has read a mebibyte, and its reply tells the caller to go on with another call.
local bytes_left = 1048576
local withholds = false

local function counted(fields)
  for _, cell in ipairs(fields) do bytes_left = bytes_left - #cell end
  return fields
end

-- Returns of an entry that the server cannot send only what names it, with a size in the place of the payload: an entry of
-- another client may be large by any field, by a field's name, or by their number.
local function withhold(fields)
  local size, kept, found = 0, {}, {}
  for _, cell in ipairs(withholds and fields or {}) do size = size + #cell end
  if size <= 65536 then return fields end
  for n = 1, #fields, 2 do kept[fields[n]] = fields[n + 1] end
  for _, name in ipairs({'id', 'retries', 'due', 'attributes', 'unique'}) do
    if kept[name] and #kept[name] <= 8192 then found[#found + 1], found[#found + 2] = name, kept[name] end
  end
  local payload = #(kept['payload'] or '')
  found[#found + 1], found[#found + 2] = 'payload', payload > 65536 and payload or size
  return found
end

-- Returns the fields of an entry, as a flat list of names and values; nil if it was deleted.
local function read(stream, entry)
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  return found and counted(found[2])
end

-- Calls `take` with entries and their fields until `fetch` finds no more, there are `limit`, or the budget is spent.
-- The sizes are not known before, so it fetches a few at a time: 1, 2, 4 and so on up to 16. Returns whether no more
-- were found.
local function each_entry(limit, fetch, take)
  local number = 1
  while limit > 0 and bytes_left > 0 do
    local rows = fetch(math.min(number, limit))
    for _, row in ipairs(rows) do take(row[1], counted(row[2])) end
    if #rows < math.min(number, limit) then return true end
    limit, number = limit - #rows, math.min(2 * number, 16)
  end
  return false
end
