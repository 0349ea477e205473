local most_cells = 4000

-- Takes an entry out of everything that is kept of it.
local function remove(stream, group, errors, delays, entry)
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', errors, entry)
  redis.call('HDEL', delays, entry)
end

-- Moves an entry to the dead letter: its own fields, then attempts, reason and error. It blocks its id no longer. Of one
-- that others have added there may be more cells than a call can unpack.
local function bury(stream, group, ids, dead, errors, delays, dead_max, entry, fields, attempts, reason, error)
  local row = {}
  for n = 1, math.min(#fields, most_cells) do row[n] = fields[n] end
  for _, cell in ipairs({'attempts', attempts, 'reason', reason, 'error',
    error ~= '' and error or redis.call('HGET', errors, entry) or ''}) do
    row[#row + 1] = cell
  end
  -- Adds before it removes: where the dead letter may not be written, the message stays in the stream.
  redis.call('XADD', dead, 'MAXLEN', dead_max, '*', unpack(row))
  remove(stream, group, errors, delays, entry)
  local id = field(fields, 'unique') and field(fields, 'id')
  if id then redis.call('SREM', ids, id) end
end
