-- Reads a page of the presence of consumers. It ends early when the byte budget is spent.
-- KEYS: workers hash, beats zset
-- ARGV: now (ms or ''), cursor (0 at the start), limit (entries)
-- Returns: now (ms), cursor of the next page (0 at the end), then per consumer: id, until when its entry counts (ms), entry
-- Re-run: reads only.
-- Uses: bytes, clock
local workers, beats = unpack(KEYS)
local override, cursor, limit = unpack(ARGV)
local page = scan_payloads(workers, cursor, tonumber(limit))
local reply = {math.floor(clock(override) / 1000), page[1]}
for n = 1, #page[2], 2 do
  local ends = redis.call('ZSCORE', beats, page[2][n])
  if ends then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = page[2][n], ends, page[2][n + 1]
  end
end
return reply
