-- Counts the names of the pending messages that are due before a time: of all if they are few, else of a sample that is
-- spread evenly over their due times.
-- KEYS: pending zset, attributes hash
-- ARGV: before (ms, excluded), size (of the sample)
-- Returns: how many messages there are, how many of them were read, then each name ('' for none) and how many have it
-- Re-run: reads only.
-- Uses: bytes
local pending, attributes = unpack(KEYS)
local before, size = ARGV[1], tonumber(ARGV[2])
local total = redis.call('ZCOUNT', pending, '-inf', '(' .. before)
if redis.call('HLEN', attributes) == 0 then return {total, total, '', total} end

local counts, sampled = {}, 0
while sampled < math.min(total, size) and bytes_left > 0 do
  -- In steps of the golden ratio: however many have been read, they are spread evenly, and follow no other pattern.
  local rank = total <= size and sampled or math.floor(sampled * 618034 % 1000000 * total / 1000000)
  local id = redis.call('ZRANGE', pending, rank, rank)[1]
  local name = string.match(' ' .. (read_payload(attributes, id) or ''), ' name=(%S+)') or ''
  counts[name], sampled = (counts[name] or 0) + 1, sampled + 1
end
local found = {total, sampled}
for name, count in pairs(counts) do
  found[#found + 1], found[#found + 2] = name, count
end
return found
