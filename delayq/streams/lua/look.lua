-- Looks around for what comes next.
-- KEYS: stream stream, meta hash
-- ARGV: group, lease (ms), soon (ms; when to look again for what is too much to look at), waiter (the consumer of the
--   blocking read of this process)
-- Returns: "0 next_due next_deadline waiting old now": when to look again (ms) or -1; when the first lease or delay is
--   over that is not (ms) or -1; 1 if a claim would find something; 1 if nobody has pruned for a minute; ms
-- Re-run: reads only.
-- Uses: clock, pel
local stream, meta = unpack(KEYS)
local group, lease, soon, waiter = unpack(ARGV, 1, 4)
local now, next_due, next_deadline = math.floor(clock('') / 1000), -1, -1
local known = find_group(stream, group)
-- Where there is no group yet, a claim makes it.
if not known then return string.format('0 -1 -1 1 0 %.0f', now) end
local pruned = redis.call('HGET', meta, 'pruned')
local old = not pruned or math.abs(now - pruned) > 60000
local waiting = undelivered(stream, known) or #redis.call('XPENDING', stream, group, '-', '+', 1, waiter) > 0
local held = redis.call('XPENDING', stream, group, '-', '+', 100)
if #held == 100 then next_due = now + soon end
for _, one in ipairs(held) do
  local deadline = now - one[3] + lease
  -- What is over is to be had: a consumer without room for it must not think that there is something to be in time for.
  if deadline <= now then
    waiting = true
  elseif next_deadline == -1 or deadline < next_deadline then
    next_deadline = deadline
  end
end
return string.format('0 %.0f %.0f %d %d %.0f', next_due, next_deadline, waiting and 1 or 0, old and 1 or 0, now)
