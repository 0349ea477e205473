-- Finds the entry of an id: the oldest one in the stream, or the latest one in the dead letter.
-- KEYS: stream stream, dead stream
-- ARGV: id, where (stream or dead), after (entry, '' at the start), limit (entries to search)
-- Returns: the entry ('' if not found yet), the entry after which to continue ('' at the end), entries searched
-- Re-run: reads only.
-- Uses: entries, pel
local stream, dead = unpack(KEYS)
local id, where, after, limit = unpack(ARGV, 1, 4)
local found, searched = '', 0

local at_end = each_entry(tonumber(limit), function(count)
  local start = after ~= '' and '(' .. after
  if found ~= '' then return {} end
  if where == 'stream' then return redis.call('XRANGE', stream, start or '-', '+', 'COUNT', count) end
  return redis.call('XREVRANGE', dead, start or '+', '-', 'COUNT', count)
end, function(entry, fields)
  if found == '' and field(fields, 'id') == id then found = entry end
  after, searched = entry, searched + 1
end)
return {found, not at_end and found == '' and after or '', searched}
