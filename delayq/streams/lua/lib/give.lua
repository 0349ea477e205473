-- Assigns an entry to a consumer, with an idle time (ms) and a number of deliveries.
local function give(stream, group, consumer, entry, idle, deliveries)
  redis.call('XCLAIM', stream, group, consumer, 0, entry, 'IDLE', idle, 'RETRYCOUNT', deliveries, 'JUSTID')
end

-- Stores what `note_of` returns.
local function note(delays, entry, at, free)
  local text = (at and string.format('%.0f', at) or '') .. (free > 0 and string.format(' %.0f', free) or '')
  if text == '' then redis.call('HDEL', delays, entry) else redis.call('HSET', delays, entry, text) end
end

-- Makes an entry claimable after a delay (ms). Redis has no negative idle time: a delay longer than the lease is stored,
-- and checked when the lease expires.
local function give_later(stream, group, delays, entry, now, delay, lease, deliveries, free)
  note(delays, entry, tonumber(delay) > tonumber(lease) and now + delay or nil, free)
  give(stream, group, nobody, entry, math.max(lease - delay, 0), deliveries)
end
