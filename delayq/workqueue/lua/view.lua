-- Reads all that is known of items.
-- KEYS: queue list, processing list, then for each id: item string, lease string
-- ARGV: last (of the bytes of data to return, counted from 0; -1 for all), most (ids of a list that are searched to tell
--   where an item is; 0 for not searching), then ids
-- Returns: now (ms), then for each id {data, size, holder ('' for none), rest of the lease (ms), place}, {} for one that
--   is no item; place is processing, queued or orphaned, '' if it was not searched for
-- Re-run: reads only.
local queue, processing = KEYS[1], KEYS[2]
local last, most = unpack(ARGV, 1, 2)
local time = redis.call('TIME')
local answer = {math.floor(time[1] * 1000 + time[2] / 1000)}
for n = 3, #ARGV do
  local id, item, lease, place = ARGV[n], KEYS[2 * n - 3], KEYS[2 * n - 2], ''
  local row, size = {}, redis.call('STRLEN', item)
  if size > 0 or redis.call('EXISTS', item) == 1 then
    if most ~= '0' then
      place = redis.call('LPOS', processing, id, 'MAXLEN', most) and 'processing'
        -- In a queue that is too long to be searched it is most likely.
        or (redis.call('LPOS', queue, id, 'RANK', -1, 'MAXLEN', most) or redis.call('LLEN', queue) > tonumber(most))
          and 'queued' or 'orphaned'
    end
    row = {redis.call('GETRANGE', item, 0, last), size, redis.call('GET', lease) or '', redis.call('PTTL', lease), place}
  end
  answer[#answer + 1] = row
end
return answer
