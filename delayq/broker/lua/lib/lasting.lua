-- Sets whose entries end at a time: what has ended is deleted as they are used. They also have a TTL, so that a set that
-- nobody uses any more goes as a whole, once its last entry has ended.

-- For so long (ms) a set outlives its last entry. It gets twice that, so that its TTL is set about once an hour.
local SPARE = 3600000

-- Returns when the last entry of a set ends at the latest (ms), each at most a span after its score; 0 for none.
local function last_end(zset, span)
  local score = redis.call('ZRANGE', zset, -1, -1, 'WITHSCORES')[2]
  return score and math.min(score + span, 7258118399999) or 0
end

-- Returns how long a key lasts (ms), negative without a TTL; without the right to ask for it, for ever.
local function time_left(key)
  local left = redis.pcall('PTTL', key)
  return type(left) == 'number' and left or math.huge
end

local function set_ttl(last, now, span, zset, hash)
  local ttl = string.format('%.0f', math.max(last, last_end(zset, span), now) - now + 2 * SPARE)
  redis.pcall('PEXPIRE', zset, ttl)
  if hash then redis.pcall('PEXPIRE', hash, ttl) end
end

-- Lets a set, and the hash beside it (or nil), last until a time (ms), and until all of its entries have ended. Counts
-- from `now`, which a test may set. Without the right to set a TTL nothing changes.
local function let_last(last, now, span, zset, hash)
  if time_left(zset) < last - now + SPARE then set_ttl(last, now, span, zset, hash) end
end

-- Does so for all that is in a set: also for what has no TTL yet, or another span than before.
local function let_all_last(now, span, zset, hash)
  local last = last_end(zset, span)
  if last == 0 then return end
  local left = math.min(time_left(zset), hash and time_left(hash) or math.huge)
  if left < last - now + SPARE then set_ttl(last, now, span, zset, hash) end
end
