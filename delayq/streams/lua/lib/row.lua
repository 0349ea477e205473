-- Fields that a row has; other fields, of another client's entry, are left out.
local shown_fields = {'id', 'payload', 'retries', 'due', 'headers', 'attempts', 'reason', 'error'}

-- Returns a row: entry, consumer, idle (ms), attempts, time of the retry if stored (ms), last error, size of the payload,
-- then names and values of its fields, the payload cut to `preview` bytes.
local function row_of(errors, delays, preview, entry, pending, body)
  local row, size = {entry, '', 0, 0, '', ''}, 0
  if pending then
    local at, free = note_of(delays, entry, pending[4])
    row = {entry, pending[2], pending[3], pending[4] - free, at and string.format('%.0f', at) or '',
      redis.call('HGET', errors, entry) or ''}
  end
  for _, name in ipairs(shown_fields) do
    local value = field(body, name)
    if name == 'payload' then size = #(value or '') end
    if value then
      row[#row + 1] = name
      row[#row + 1] = name == 'payload' and string.sub(value, 1, preview) or value
    end
  end
  table.insert(row, 7, size)
  return row
end
