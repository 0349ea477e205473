-- Finds the entry of an id: the oldest one in the stream, or the latest one in the dead letter.
-- KEYS: stream stream, dead stream
-- ARGV: id, where (stream or dead), after (entry, '' at the start), limit (entries to search), max_bytes (of payloads:
--   the search stops after so many)
-- Returns: the entry ('' if not found yet), and the entry after which to continue ('' at the end)
-- Re-run: reads only.
-- Uses: pel
local stream, dead = unpack(KEYS)
local id, where, after, limit, max_bytes = unpack(ARGV, 1, 5)
local scanned, rows = 0, nil
limit, max_bytes = tonumber(limit), tonumber(max_bytes)
while scanned < limit and max_bytes > 0 do
  local start, count = after ~= '' and '(' .. after, math.min(16, limit - scanned)
  if where == 'stream' then
    rows = redis.call('XRANGE', stream, start or '-', '+', 'COUNT', count)
  else
    rows = redis.call('XREVRANGE', dead, start or '+', '-', 'COUNT', count)
  end
  if #rows == 0 then return {'', ''} end
  for _, row in ipairs(rows) do
    if field(row[2], 'id') == id then return {row[1], ''} end
    after, scanned, max_bytes = row[1], scanned + 1, max_bytes - #(field(row[2], 'payload') or '')
  end
end
return {'', after}
