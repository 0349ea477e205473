-- Reads whether messages wait, and when to poll again.
-- KEYS: stream stream, meta hash
-- ARGV: group, lease (ms), tick (ms; when to poll again if more entries are pending than one call reads), waiter (the
--   consumer name of this process's blocking read)
-- Returns: "0 next_due next_deadline waiting old now": when to poll again (ms) or -1; when the next lease or delay
--   expires (ms) or -1; 1 if a claim would find a message; 1 if the last prune is more than a minute ago; ms
-- Re-run: reads only.
-- Uses: clock, numbers, pel
local stream, meta = unpack(KEYS)
local group, lease, tick, waiter = unpack(ARGV, 1, 4)
local now, next_due, next_deadline = math.floor(clock('') / 1000), -1, -1
local info = find_group(stream, group)
-- If the group does not exist yet, a claim creates it.
if not info then return string.format('0 -1 -1 1 0 %.0f', now) end
local pruned = whole(redis.call('HGET', meta, 'pruned'))
local old = not pruned or math.abs(now - pruned) > 60000
local waiting = undelivered(stream, info) or #redis.call('XPENDING', stream, group, '-', '+', 1, waiter) > 0
local pending = redis.call('XPENDING', stream, group, '-', '+', 100)
if #pending == 100 then next_due = now + tick end
for _, entry in ipairs(pending) do
  local deadline = now - entry[3] + lease
  -- Expired entries count as waiting, not as a deadline: a consumer at capacity must not wake up early for them.
  if deadline <= now then
    waiting = true
  elseif next_deadline == -1 or deadline < next_deadline then
    next_deadline = deadline
  end
end
return string.format('0 %.0f %.0f %d %d %.0f', next_due, next_deadline, waiting and 1 or 0, old and 1 or 0, now)
