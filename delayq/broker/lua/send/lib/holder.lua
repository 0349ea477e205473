-- Returns who holds an id that a send with this status leaves as it is: the state of its message, and its due time (ms),
-- '-' if it is not known. An id that is settled is held as `held_until` says.
local function holder_of(pending, deliveries, done, id, status, now)
  if status == '5' then
    return string.format(' settled %.0f', held_until(redis.call('ZSCORE', done, id)))
  elseif status ~= '0' and status ~= '3' then
    return ''
  end
  local state, due = string.match(redis.call('HGET', deliveries, id) or '', '^(%a+) (%d+)')
  local score = redis.call('ZSCORE', pending, id)
  if score then state, due = tonumber(score) <= now and 'ready' or 'pending', time_of(score) end
  return ' ' .. (state or 'pending') .. ' ' .. (due or '-')
end
