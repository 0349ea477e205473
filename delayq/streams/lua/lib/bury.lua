local max_cells = 4000 -- of an entry: another client's may have more than one call can unpack

-- Acknowledges and deletes an entry, with its error and its delay.
local function remove(stream, group, errors, delays, entry)
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', errors, entry)
  redis.call('HDEL', delays, entry)
end

-- Moves an entry to the dead letter: its own fields, then attempts, reason and error. Frees its id.
local function bury(stream, group, ids, dead, errors, delays, dead_max, entry, fields, deliveries, reason, error)
  local row = {}
  for n = 1, math.min(#fields, max_cells) do row[n] = fields[n] end
  for _, cell in ipairs({'attempts', string.format('%.0f', charged(delays, entry, tonumber(deliveries))), 'reason', reason, 'error',
    error ~= '' and error or redis.call('HGET', errors, entry) or ''}) do
    row[#row + 1] = cell
  end
  -- Adds before it removes: if the dead letter cannot be written, the message stays in the stream.
  redis.call('XADD', dead, 'MAXLEN', dead_max, '*', unpack(row))
  remove(stream, group, errors, delays, entry)
  local id = field(fields, 'unique') and field(fields, 'id')
  if id then redis.call('SREM', ids, id) end
end
