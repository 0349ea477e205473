-- Takes an entry out of everything that is kept of it.
local function remove(stream, group, errors, delays, entry)
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', errors, entry)
  redis.call('HDEL', delays, entry)
end

-- Moves an entry to the dead letter: its own fields, then attempts, reason and error. It blocks its id no longer.
local function bury(stream, group, ids, dead, errors, delays, dead_max, entry, fields, attempts, reason, error)
  local row = {}
  for n, cell in ipairs(fields) do row[n] = cell end
  for _, cell in ipairs({'attempts', attempts, 'reason', reason, 'error',
    error ~= '' and error or redis.call('HGET', errors, entry) or ''}) do
    row[#row + 1] = cell
  end
  remove(stream, group, errors, delays, entry)
  if field(fields, 'unique') then redis.call('SREM', ids, field(fields, 'id')) end
  redis.call('XADD', dead, 'MAXLEN', dead_max, '*', unpack(row))
end
