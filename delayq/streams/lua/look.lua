-- Looks around for what comes next.
-- KEYS: stream stream
-- ARGV: group, lease (ms), soon (ms; when to look again for what is too much to look at)
-- Returns: "0 -1 next_deadline waiting 0 now": ms or -1; 1 if a claim would find something; ms
-- Re-run: reads only.
-- Uses: clock, pel
local stream = KEYS[1]
local group, lease, soon = unpack(ARGV, 1, 3)
local now, next_deadline = math.floor(clock('') / 1000), -1
local known = find_group(stream, group)
-- Where there is no group yet, a claim makes it.
if not known then return string.format('0 -1 -1 1 0 %.0f', now) end
local held = redis.call('XPENDING', stream, group, '-', '+', 100)
if #held == 100 then next_deadline = now + soon end
for _, one in ipairs(held) do
  local deadline = now - one[3] + lease
  if next_deadline == -1 or deadline < next_deadline then next_deadline = deadline end
end
local waiting = undelivered(stream, known) or next_deadline ~= -1 and next_deadline <= now
return string.format('0 -1 %.0f %d 0 %.0f', next_deadline, waiting and 1 or 0, now)
