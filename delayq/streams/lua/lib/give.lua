-- Gives an entry to a consumer as if it had been idle for so long, under this number of deliveries.
local function give(stream, group, consumer, entry, idle, deliveries)
  redis.call('XCLAIM', stream, group, consumer, 0, entry, 'IDLE', idle, 'RETRYCOUNT', deliveries, 'JUSTID')
end
