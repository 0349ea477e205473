-- Lines: what limits hold back, each in the order of ranks (see `rank`). The gate of a line says when its first may start;
-- it is there while somebody waits. The gate of the queue, number 0, is there while its limit is used up.

-- Takes from the lines whose gates are open, from a hundred at most; `take` claims from a source.
local function take_lines(limits, gates, throttled, running, key_lines, deliveries, attributes, wanted, take)
  local now = math.floor(limiting.time / 1000)
  local open = redis.call('ZRANGEBYSCORE', gates, '-inf', now, 'LIMIT', 0, 100)
  limiting.more = #open == 100
  for _, number in ipairs(open) do
    number = string.match(number, '^%d+$') and tonumber(number) or number
    if type(number) == 'string' then -- written by another program
      limiting.emptied[number] = true
    elseif number ~= 0 and #ids >= wanted then
      limiting.more = true
    elseif number ~= 0 then
      local waiting = length_of_line(throttled, key_lines, number)
      if waiting == 0 or number >= first_template and number < first_key and not removed_template(limits, number) then
        limiting.emptied[number] = true -- all were cancelled or moved
      else
        local most, source = math.min(wanted - #ids, waiting), nil
        if number < first_key then
          source = line_source(limits, gates, throttled, running, deliveries, attributes, number, most)
        else
          source = key_source(limits, gates, throttled, running, key_lines, deliveries, attributes, number, most)
        end
        if source then
          take(source, nil, source.length)
          take_out(source)
          source.limit.line = source.limit.joined or waiting > source.scanned + #(source.gone or {})
        end
      end
    end
  end
end

-- Counts what this call starts for the limit of the queue. Returns whether nothing more may start now, and whether more of
-- what waits in a line may. A claim that is made again returns only whether the queue was closed then.
local function count_starts(limits, gates, running, past)
  if not limiting then return false, false end
  if past then return redis.call('ZSCORE', gates, 0), false end
  local queue, more = limit_of_queue(limits, running), limiting.more
  for n = 1, queue and #ids or 0 do start_under(queue, ids[n]) end
  if queue and not may_start(queue) then return true, false end
  for _, one in pairs(limiting.known) do more = more or one and one.line and may_start(one) end
  return false, more
end

local function settle_limits(limits, gates, throttled, running, key_lines, deliveries, meta)
  if #limiting.gone > 0 then redis.call('ZREM', throttled, unpack(limiting.gone)) end
  if limiting.setting then settle_keys(limits, gates, running, key_lines, meta) end
  if #limiting.ids > 0 then
    redis.call('ZADD', throttled, unpack(limiting.scores))
    redis.call('HSET', deliveries, unpack(limiting.records))
    increase(meta, 'throttled', #limiting.ids)
  end
  if #limiting.places > 0 then redis.call('ZADD', running, unpack(limiting.places)) end
  local changed, closed, opened = {}, {}, {}
  for number in pairs(limiting.emptied) do opened[#opened + 1] = number end
  for scope, one in pairs(limiting.known) do
    if one and one.changed then changed[#changed + 1], changed[#changed + 2] = scope, limit_text(one) end
    if one and (one.line or one.number == 0 and not may_start(one)) then
      closed[#closed + 1], closed[#closed + 2] = gate_time(opens_at(one, limiting.time)), one.number
    elseif one and (one.lined or one.number == 0) then
      opened[#opened + 1] = one.number
      if one.lined and is_over(one, limiting.time) then limiting.over[#limiting.over + 1] = scope end
    end
  end
  if #opened > 0 then redis.call('ZREM', gates, unpack(opened)) end
  if #closed > 0 then redis.call('ZADD', gates, unpack(closed)) end
  if #changed > 0 then redis.call('HSET', limits, unpack(changed)) end
  if #limiting.over > 0 then
    redis.call('HDEL', limits, unpack(limiting.over))
    if limiting.known.queue == false then redis.call('ZREM', gates, 0) end
    if limiting.setting or redis.call('HLEN', limits) == 0 then note_limited(limits, meta) end
  end
end

-- Returns the trials among what this call starts, each as " ;id scope"; of one made again, what it has remembered.
local function trials_of(past)
  if past then return string.match(past, ' ;.*$') or '' end
  return limiting and table.concat(limiting.trials) or ''
end

-- Returns when something that waits may start (ms), '-1' if this is not known. While the queue is closed, nothing does.
local function next_gate(gates)
  if not limiting then return '-1' end
  local at = redis.call('ZSCORE', gates, 0) or redis.call('ZRANGE', gates, 0, 0, 'WITHSCORES')[2]
  return at and at ~= 'inf' and at or '-1'
end
