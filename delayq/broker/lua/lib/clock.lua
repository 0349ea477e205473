-- The server's clock in microseconds, or the override (in milliseconds) of a test or the test kit.
local function clock(override)
  if override ~= '' then return override * 1000 end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
