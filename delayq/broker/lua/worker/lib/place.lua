-- The place of a consumer among those whose entries count: they take turns to look at their queue.

-- Returns how many of them come before it by id, and how many there are with itself: a hundred are read.
local function place_among(beats, consumer, now)
  local before, together = 0, 1
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', beats, now, '+inf', 'LIMIT', 0, 100)) do
    if id ~= consumer then together, before = together + 1, before + (id < consumer and 1 or 0) end
  end
  return before, together
end
