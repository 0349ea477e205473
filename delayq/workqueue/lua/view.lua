-- Reads items: data, lease and location.
-- KEYS: queue list, processing list, then for each id: item string, lease string
-- ARGV: last (byte of the data to return, counted from 0; -1 for all), max_searched (ids of each list that are searched
--   for the location of an item; 0 to skip the search), then ids
-- Returns: now (ms), then for each id {data, size, holder ('' for none), remaining lease (ms), location}, {} for an
--   id without an item; location is processing, queued or orphaned, '' if not searched for
-- Re-run: reads only.
local queue, processing = KEYS[1], KEYS[2]
local last, max_searched = unpack(ARGV, 1, 2)
local time = redis.call('TIME')
local reply = {math.floor(time[1] * 1000 + time[2] / 1000)}
for n = 3, #ARGV do
  local id, item, lease, location = ARGV[n], KEYS[2 * n - 3], KEYS[2 * n - 2], ''
  local row, size = {}, redis.call('STRLEN', item)
  if size > 0 or redis.call('EXISTS', item) == 1 then
    if max_searched ~= '0' then
      local function has(list, rank) return redis.call('LPOS', list, id, 'RANK', rank, 'MAXLEN', max_searched) end
      -- An item that was not found is most likely in a queue that is too long to search.
      local too_long = redis.call('LLEN', queue) > tonumber(max_searched)
      location = has(processing, 1) and 'processing' or (has(queue, -1) or too_long) and 'queued' or 'orphaned'
    end
    local data, holder = redis.call('GETRANGE', item, 0, last), redis.call('GET', lease) or ''
    row = {data, size, holder, redis.call('PTTL', lease), location}
  end
  reply[#reply + 1] = row
end
return reply
