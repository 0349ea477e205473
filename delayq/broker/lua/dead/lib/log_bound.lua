-- Cuts the event log to a number of bytes, by their mean in an entry: with some room, so that the next cut is not near. Where
-- the login may not ask what a key takes, or the server cannot tell, the log has its number of entries alone.
local function bound_log(events, max_bytes)
  max_bytes = tonumber(max_bytes)
  local bytes = redis.pcall('MEMORY', 'USAGE', events, 'SAMPLES', 20)
  if type(bytes) ~= 'number' or bytes <= max_bytes then return end
  local entries = redis.pcall('XLEN', events)
  if type(entries) == 'number' then
    redis.pcall('XTRIM', events, 'MAXLEN', '~', math.floor(entries * max_bytes / bytes * 9 / 10))
  end
end
