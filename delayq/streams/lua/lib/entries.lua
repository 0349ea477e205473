-- Entries are read within a budget of bytes, so that no call keeps the server busy for long: a script stops after the
-- entries with which it has read a mebibyte, and its reply tells the caller to go on with another call.
local bytes_left = 1048576
local withholds = false

local function counted(fields)
  for _, cell in ipairs(fields) do bytes_left = bytes_left - #cell end
  return fields
end

-- Puts its size in the place of a large payload, which the server cannot send, and nothing in that of other large fields.
local function withhold(fields)
  for n = 2, withholds and #fields or 0, 2 do
    if #fields[n] > 65536 then fields[n] = fields[n - 1] == 'payload' and #fields[n] or '' end
  end
  return fields
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
