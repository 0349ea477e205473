-- Finds the names of schedules: those with a label or, without one, those that begin with a text. In the order of their
-- names, but in any order without a label if there are more than 1,000 schedules. Looks at a limited number, so a page
-- may have few, or none, although more follow.
-- KEYS: schedule_states hash, schedule_labels zset
-- ARGV: label ('' for any), prefix (what names begin with), cursor ('' at the start), limit (names)
-- Returns: cursor of the next page ('' at the end), then names; some more than the limit if they are in any order
-- Re-run: reads only.
local schedule_states, schedule_labels = unpack(KEYS)
local label, prefix, cursor, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local after, found = string.match(cursor, '^@(.*)$'), {''}

-- Ends a page of names in order at the limit.
local function ended(size)
  if size >= limit then found[1] = '@' .. found[#found] end
  return found
end

if label ~= '' then
  local member = label .. ' '
  local first = after and '(' .. member .. after or '[' .. member .. prefix
  -- After all names that begin with the prefix: no name has a tilde.
  local members = redis.call('ZRANGEBYLEX', schedule_labels, first, '[' .. member .. prefix .. '~', 'LIMIT', 0, limit)
  for i, one in ipairs(members) do found[i + 1] = string.sub(one, #member + 1) end
  return ended(#members)
end

if (after or cursor == '') and redis.call('HLEN', schedule_states) <= 1000 then
  local names = {}
  for _, name in ipairs(redis.call('HKEYS', schedule_states)) do
    if string.sub(name, 1, #prefix) == prefix and name > (after or '') then names[#names + 1] = name end
  end
  table.sort(names)
  for i = 1, math.min(#names, limit) do found[i + 1] = names[i] end
  return ended(#names - 1)
end

local scanned, count = 0, math.min(limit, 200)
if after or cursor == '' then cursor = '0' end
while scanned < 10000 and #found <= limit do
  local page = redis.call('HSCAN', schedule_states, cursor, 'MATCH', prefix .. '*', 'COUNT', count)
  for i = 1, #page[2], 2 do found[#found + 1] = page[2][i] end
  cursor, scanned, count = page[1], scanned + count, math.min(2 * count, 200)
  if cursor == '0' then return found end
end
found[1] = cursor
return found
