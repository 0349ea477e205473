-- Settled ids, kept for the dedupe window so that sending them again is refused. The setting is
-- "window max": ms; ids.

-- Returns the settings of the event log and of the dedupe window, false for each that is off, and the schema: while it is
-- 1, no message has attributes.
local function switched(meta, done)
  local settings = redis.call('HMGET', meta, 'events', 'dedupe', 'schema')
  if settings[2] then redis.call('ZCARD', done) end
  return settings[1], settings[2], settings[3]
end

-- Returns for each id whether it was settled within the window.
local function settled(done, setting, now, ids)
  local since, found = now - string.match(setting, '^%d+'), {}
  for n, at in ipairs(redis.call('ZMSCORE', done, unpack(ids))) do found[n] = at and tonumber(at) > since end
  return found
end

-- Deletes the oldest ids, those outside the window or above the maximum, up to a limit.
local function forget(done, setting, now, limit)
  local window, max_ids = string.match(setting, '^(%d+) (%d+)$')
  local old = redis.call('ZCOUNT', done, '-inf', string.format('%.0f', now - window))
  local excess = math.min(math.max(old, redis.call('ZCARD', done) - max_ids), limit)
  if excess > 0 then redis.call('ZREMRANGEBYRANK', done, 0, excess - 1) end
end

-- Adds ids, and deletes up to twice as many old ones: the set shrinks as it is used.
local function settle(done, setting, now, ids)
  if not setting then return end
  local times = {}
  for n, id in ipairs(ids) do times[2 * n - 1], times[2 * n] = string.format('%.0f', now), id end
  redis.call('ZADD', done, unpack(times))
  forget(done, setting, now, 2 * #ids)
end
