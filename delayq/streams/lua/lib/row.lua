-- What is told of a message that is looked at: of an entry that others have added, too, the fields that are known.
local told = {'id', 'payload', 'retries', 'due', 'headers', 'attempts', 'reason', 'error'}

-- Returns a row: entry, holder, idle (ms), deliveries, when it comes again if that is kept (ms), last error, size of the
-- payload, then names and values of its fields, the payload cut to so many bytes.
local function row_of(errors, delays, preview, entry, held, body)
  local row, size = {entry, held and held[2] or '', held and held[3] or 0, held and held[4] or 0,
    held and redis.call('HGET', delays, entry) or '', held and redis.call('HGET', errors, entry) or ''}, 0
  for _, name in ipairs(told) do
    local value = field(body, name)
    if name == 'payload' then size = #(value or '') end
    if value then
      row[#row + 1] = name
      row[#row + 1] = name == 'payload' and string.sub(value, 1, preview) or value
    end
  end
  table.insert(row, 7, size)
  return row, size
end
