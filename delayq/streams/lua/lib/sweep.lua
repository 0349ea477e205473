-- Goes round what a group has delivered and not settled, for what is past its lease.

-- Gives what is past its lease to a holder, and calls `recover` with each entry, be it a deleted one, while something is
-- wished for. Looks at some thousand entries at most; the next call goes on behind them, for all of
-- those may be in work. To come round a longer list is the work of all consumers together, once a second. Returns
-- whether to go on at once.
local function sweep(stream, group, holder, meta, now, lease, wished, recover)
  local place, rest = 'cursor ' .. group, 'rest ' .. group
  local state, looked, wrapped = redis.call('HMGET', meta, place, rest), 0, false
  local from, left = state[1] or '0-0', (state[2] or 0) - now
  local cursor = from
  if left > 0 and left <= 1000 then return false end
  while wished() > 0 and looked < 1000 do
    local most = 10 * wished() -- entries that XAUTOCLAIM looks at for so many
    local found = redis.call('XAUTOCLAIM', stream, group, holder, lease, cursor, 'COUNT', wished(), 'JUSTID')
    cursor = found[1]
    for _, entry in ipairs(found[2]) do recover(entry) end
    for _, entry in ipairs(found[3] or {}) do recover(entry) end
    if cursor ~= '0-0' then
      looked = looked + most
    elseif from == '0-0' or wrapped then
      break
    else
      wrapped = true
    end
  end
  if cursor ~= from then redis.call('HSET', meta, place, cursor) end
  local round = wrapped or cursor == '0-0'
  if round and looked >= 1000 then redis.call('HSET', meta, rest, string.format('%.0f', now + 1000)) end
  return cursor ~= '0-0' and not (round and looked >= 1000)
end
