-- Looks for the entry of an id: the oldest of the stream, or the latest of the dead letter.
-- KEYS: stream stream, dead stream
-- ARGV: id, where (stream or dead), after (entry, '' at the start), limit (entries to look at), room (bytes of payloads
--   after which it ends)
-- Returns: the entry ('' for none so far), and the one after which to go on ('' at the end)
-- Re-run: reads only.
-- Uses: pel
local stream, dead = unpack(KEYS)
local id, where, after, limit, room = unpack(ARGV, 1, 5)
local looked, found = 0, nil
limit, room = tonumber(limit), tonumber(room)
while looked < limit and room > 0 do
  local next_one, some = after ~= '' and '(' .. after, math.min(16, limit - looked)
  if where == 'stream' then
    found = redis.call('XRANGE', stream, next_one or '-', '+', 'COUNT', some)
  else
    found = redis.call('XREVRANGE', dead, next_one or '+', '-', 'COUNT', some)
  end
  if #found == 0 then return {'', ''} end
  for _, one in ipairs(found) do
    if field(one[2], 'id') == id then return {one[1], ''} end
    after, looked, room = one[1], looked + 1, room - #(field(one[2], 'payload') or '')
  end
end
return {'', after}
