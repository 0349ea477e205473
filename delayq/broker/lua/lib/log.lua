-- The event log: an entry a call and kind, with a column for each thing known of every message in it, in one order.
-- The setting reads "id max_len": entries are numbered without gaps (0-*) where the server can do so.
local function logging(meta, events)
  local setting = redis.call('HGET', meta, 'events')
  if setting then redis.call('XLEN', events) end
  return setting
end

-- Joins a column, '-' for what is not known. Texts are told apart by lines, so of each the first line stays.
local function joined(name, column)
  local cells = {}
  if name == 'errors' or name == 'reasons' then
    for n = 1, #column do cells[n] = string.sub(string.match(column[n], '^[^\r\n]*'), 1, 200) end
    return table.concat(cells, '\n')
  end
  local whole, text = pcall(table.concat, column, ' ')
  if whole then return text end
  for n = 1, #column do cells[n] = column[n] or '-' end
  return table.concat(cells, ' ')
end

local function log(events, setting, kind, now, ...)
  if not setting then return end
  local id, most = string.match(setting, '^(%S+) (%d+)$')
  local entry = {'kind', kind, 'at', string.format('%.0f', now)}
  for n = 1, select('#', ...), 2 do
    local name, column = select(n, ...)
    if column ~= '' then
      entry[#entry + 1], entry[#entry + 2] = name, type(column) == 'table' and joined(name, column) or column
    end
  end
  redis.call('XADD', events, 'MAXLEN', '~', most, id, unpack(entry))
end

local function log_deaths(events, setting, now, ids, deaths)
  if not setting then return end
  local tokens, attempts, dues, reasons, errors = {}, {}, {}, {}, {}
  for n, id in ipairs(ids) do
    local death = deaths[id]
    tokens[n], attempts[n], dues[n] = death.token, death.attempts, death.due
    reasons[n], errors[n] = death.reason, death.error
  end
  log(events, setting, 'dead', now, 'ids', ids, 'tokens', tokens, 'attempts', attempts, 'dues', dues,
    'reasons', reasons, 'errors', errors)
end
