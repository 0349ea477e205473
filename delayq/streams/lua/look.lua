-- Looks around for what comes next.
-- KEYS: stream stream
-- ARGV: group, lease (ms), soon (ms; when to look again for what is too much to look at)
-- Returns: "0 -1 next_deadline waiting 0 now": ms or -1; 1 if a claim would find something; ms
-- Re-run: reads only.
-- Uses: clock, pel
local stream = KEYS[1]
local group, lease, soon = unpack(ARGV, 1, 3)
local now, next_deadline = math.floor(clock('') / 1000), -1
local held = redis.pcall('XPENDING', stream, group, '-', '+', 100)
if held.err then
  -- There is no group yet, which a claim makes.
  if not string.find(held.err, 'NOGROUP') then return held end
  return string.format('0 -1 -1 1 0 %.0f', now)
end
if #held == 100 then next_deadline = now + soon end
for _, one in ipairs(held) do
  local deadline = now - one[3] + lease
  if next_deadline == -1 or deadline < next_deadline then next_deadline = deadline end
end
local waiting = undelivered(stream, group) or next_deadline ~= -1 and next_deadline <= now
return string.format('0 -1 %.0f %d 0 %.0f', next_deadline, waiting and 1 or 0, now)
