-- Tells which of some leased messages are superseded: a later one of the same prefix is due, or has been started before.
-- One that is not leaves a mark, which supersedes what is due before. Removes members of the index whose messages have ended.
-- KEYS: pending zset, deliveries hash, latest zset, replies hash
-- ARGV: slot, sequence, now (ms or ''), then per message: id, due (ms)
-- Returns: a status per message: 1 superseded, 0 not, 2 not known yet, since too many ended ones were found
-- Re-run: returns the same reply.
-- Uses: clock, once, record, latest, superseding
local pending, deliveries, latest, replies = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now, to_find, to_clean = math.floor(clock(override) / 1000), 1000, 2000
local latest_due, ended, marks, statuses = {}, {}, {}, {}

-- Returns the latest due time of a prefix up to now (15 digits), '' for none; nil if it is not known yet.
local function find_latest(prefix)
  local before = mark_at(prefix, now) .. '!' -- the sign after the space
  while to_find > 0 do
    local page = redis.call('ZREVRANGEBYLEX', latest, '(' .. before, '[' .. prefix .. ' ', 'LIMIT', 0, 10)
    for _, member in ipairs(page) do
      local _, due, id = member_parts(member)
      if id == '' or is_current(pending, deliveries, due, id) then return due end
      ended[#ended + 1], to_find, before = member, to_find - 1, member
    end
    if #page < 10 then return '' end
  end
end

-- Notes the mark of a message, and the members before it that nothing needs any more.
local function note_mark(prefix, due)
  local mark = mark_at(prefix, due)
  if redis.call('ZSCORE', latest, mark) then return end
  marks[#marks + 1], marks[#marks + 2] = 0, mark
  local older = redis.call('ZRANGEBYLEX', latest, '[' .. prefix .. ' ', '(' .. mark, 'LIMIT', 0, math.min(to_clean, 100))
  for _, member in ipairs(older) do
    local _, at, id = member_parts(member)
    to_clean = to_clean - 1
    if not is_current(pending, deliveries, at, id) then ended[#ended + 1] = member end
  end
end

for i = 4, #ARGV, 2 do
  local prefix, due = prefix_of(ARGV[i]), ARGV[i + 1]
  if latest_due[prefix] == nil then latest_due[prefix] = find_latest(prefix) end
  local found = latest_due[prefix]
  local status = not found and '2' or found ~= '' and tonumber(found) > tonumber(due) and '1' or '0'
  if status == '0' then note_mark(prefix, due) end
  statuses[#statuses + 1] = status
end
begin(replies, slot)
if #ended > 0 then redis.call('ZREM', latest, unpack(ended)) end
if #marks > 0 then redis.call('ZADD', latest, unpack(marks)) end
return remember(replies, slot, sequence, now, table.concat(statuses))
