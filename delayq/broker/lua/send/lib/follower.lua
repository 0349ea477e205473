-- What waits to follow a message, only read: whoever may not write uses this. `successor` has the records.

-- Returns the attributes in a record; nil for no record.
local function attributes_in(record)
  local header_size, attribute_size, at = string.match(record or '', '^%d+ %d+ (%d+) (%d+)\n()')
  return at and string.sub(record, at + header_size, at + header_size + attribute_size - 1)
end
