-- Reads a page of the ids that are reserved, or of the payloads that groups gather: without their messages in it.
-- KEYS: done zset, gathered hash
-- ARGV: part (done or gathered), cursor (0 at the start), limit
-- Returns: cursor of the next page (0 at the end), then ids, or fields of gathered
-- Re-run: reads only.
-- Uses: bytes
local done, gathered = unpack(KEYS)
local part, cursor, limit = unpack(ARGV)
local page = part == 'done' and redis.call('ZSCAN', done, cursor, 'COUNT', limit)
  or scan_payloads(gathered, cursor, tonumber(limit))
local found = {page[1]}
for i = 1, #page[2], 2 do found[#found + 1] = page[2][i] end
return found
