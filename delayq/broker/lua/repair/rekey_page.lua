-- Reads a page of the texts that `rekey` replaces, a shorter one if they are large.
-- KEYS: messages hash, successors hash, dead_messages hash, schedule_specs hash, gathered hash
-- ARGV: part (the hash), cursor (0 at the start), limit (texts), head (how a payload begins that needs no change)
-- Returns: cursor of the next page (0 at the end), how many messages of the page need no change, then id and text of each
--   other
-- Re-run: reads only.
-- Uses: bytes
local messages, successors, dead_messages, schedule_specs, gathered = unpack(KEYS)
local part, cursor, limit, head = unpack(ARGV)
local hashes = {messages = messages, successors = successors, dead_messages = dead_messages,
  schedule_specs = schedule_specs, gathered = gathered}
local page = scan_payloads(hashes[part], cursor, tonumber(limit))
local found, already = {}, 0
for i = 1, #page[2], 2 do
  local id, text = page[2][i], page[2][i + 1]
  if part == 'messages' and string.sub(text, 1, #head) == head then
    already = already + 1
  else
    found[#found + 1], found[#found + 2] = id, text
  end
end
return {page[1], tostring(already), unpack(found)}
