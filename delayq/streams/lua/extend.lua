-- Renews leases by resetting the idle time, or notes that callbacks have started. The number of deliveries stays.
-- KEYS: stream stream, replies hash
-- ARGV: slot, sequence, group, consumer, idle (ms: the initial idle time, which shortens the lease; '' to
--   note starts), then per receipt: entry, delivery
-- Returns: a status per receipt: 1 renewed, 0 not leased under this delivery
-- Re-run: returns the same reply.
-- Uses: clock, once, pel
local stream, replies = unpack(KEYS)
local slot, sequence, group, consumer, idle = unpack(ARGV, 1, 5)
local past = answered(replies, slot, sequence)
if past then return past end

local now, statuses = math.floor(clock('') / 1000), {}
redis.call('XLEN', stream)
local info = find_group(stream, group)
begin(replies, slot)
local names, renewed = {}, {}
for i = 6, #ARGV, 2 do
  local name, since
  if info then name, since = holds(stream, group, consumer, ARGV[i], ARGV[i + 1]) end
  statuses[#statuses + 1] = name and '1' or '0'
  if name and idle == '' then
    redis.call('XCLAIM', stream, group, consumer, 0, ARGV[i], 'IDLE', since, 'JUSTID')
  elseif name then
    if not renewed[name] then names[#names + 1], renewed[name] = name, {} end
    table.insert(renewed[name], ARGV[i])
  end
end
for _, name in ipairs(names) do
  for _, option in ipairs({'IDLE', idle, 'JUSTID'}) do table.insert(renewed[name], option) end
  redis.call('XCLAIM', stream, group, name, 0, unpack(renewed[name]))
end
return remember(replies, slot, sequence, now, table.concat(statuses))
