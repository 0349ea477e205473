-- The server's clock in microseconds, or the override (in milliseconds) of a test or the test kit.
local function clock(override)
  if override ~= '' then return override * 1000 end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Returns the same, and as text: formatting a number of this size takes as long as a command.
local function clock_and_text(override)
  if override ~= '' then return override * 1000, override .. '000' end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
end

-- Returns the time of a send in milliseconds: rounded up, so that nothing is due too early, rounded down, for what is due
-- at once, and as text; then in microseconds as text. Formatting a number of this size takes as long as a command.
local function send_times(override)
  if override ~= '' then return tonumber(override), tonumber(override), override, override .. '000' end
  local seconds, micros = unpack(redis.call('TIME'))
  local millis, text = seconds * 1000 + micros / 1000, string.format('%s%06d', seconds, micros)
  return math.ceil(millis), math.floor(millis), string.sub(text, 1, -4), text
end
