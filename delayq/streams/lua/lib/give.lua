-- Assigns an entry to a consumer, with an idle time (ms) and a number of deliveries.
local function give(stream, group, consumer, entry, idle, deliveries)
  redis.call('XCLAIM', stream, group, consumer, 0, entry, 'IDLE', idle, 'RETRYCOUNT', deliveries, 'JUSTID')
end
