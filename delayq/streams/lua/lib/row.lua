-- Fields that a row has; other fields, of another client's entry, are left out.
local shown_fields = {'id', 'payload', 'retries', 'due', 'headers', 'attempts', 'reason', 'error'}

-- Returns a row: entry, consumer, idle (ms), deliveries, time of the retry if stored (ms), last error, size of the
-- payload, then names and values of its fields, the payload cut to `preview` bytes.
local function row_of(errors, delays, preview, entry, pending, body)
  local row, size = {entry, pending and pending[2] or '', pending and pending[3] or 0, pending and pending[4] or 0,
    pending and redis.call('HGET', delays, entry) or '', pending and redis.call('HGET', errors, entry) or ''}, 0
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
