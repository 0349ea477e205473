-- Returns how many entries of a list are not stale, by the counter of those that are. One that is no number, or more than
-- there are entries, counts for nothing: what waits must not be overlooked.
local function living_in(list, counter)
  local length, stale = redis.call('LLEN', list), whole(counter) or 0
  return stale <= length and length - stale or length
end
