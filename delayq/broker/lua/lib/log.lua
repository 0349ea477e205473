-- The event log: one entry per call and kind, with columns that hold one value per message, in the same order.
-- The setting is "id max_len": entries are numbered without gaps (0-*) if the server supports it. Scripts log last: an
-- entry that cannot be written is counted in meta, and changes nothing else.
local function logging(meta)
  return redis.call('HGET', meta, 'events')
end

-- Joins a column, '-' for a missing value. Texts are separated by newlines, so only the first line of each is kept.
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

-- Writes an entry, unless it would contain no ids.
local function log(events, meta, setting, kind, now, ...)
  if not setting then return end
  local id, max_len = string.match(setting, '^(%S+) (%d+)$')
  local entry = {'kind', kind, 'at', string.format('%.0f', now)}
  for n = 1, select('#', ...), 2 do
    local name, column = select(n, ...)
    if name == 'ids' and #column == 0 then return end
    if column ~= '' then
      entry[#entry + 1], entry[#entry + 2] = name, type(column) == 'table' and joined(name, column) or column
    end
  end
  local reply = redis.pcall('XADD', events, 'MAXLEN', '~', max_len, id, unpack(entry))
  if type(reply) == 'table' then redis.pcall('HINCRBY', meta, 'events_lost', 1) end -- it is an error, not an id
end

-- Writes an entry about the messages that a send has given this status. Formatting is slow and due times repeat, so each
-- is formatted once.
local function log_status(events, meta, setting, kind, now, run, dues, retry_counts, statuses, status)
  if not setting then return end
  local ids, times, left, due_texts = {}, {}, {}, {}
  for i = 1, #dues, 2 do
    local due, id = dues[i], dues[i + 1]
    due_texts[due] = due_texts[due] or string.format('%.0f', due)
    if statuses[id] == status then
      ids[#ids + 1], times[#times + 1], left[#left + 1] = id, due_texts[due], retry_counts[i + 1]
    end
  end
  log(events, meta, setting, kind, now, 'run', run, 'ids', ids, 'dues', times, 'retries', left)
end

local function log_deaths(events, meta, setting, now, ids, deaths)
  if not setting then return end
  local tokens, attempts, dues, reasons, errors = {}, {}, {}, {}, {}
  for n, id in ipairs(ids) do
    local death = deaths[id]
    tokens[n], attempts[n], dues[n] = death.token, death.attempts, death.due
    reasons[n], errors[n] = death.reason, death.error
  end
  log(events, meta, setting, 'dead', now, 'ids', ids, 'tokens', tokens, 'attempts', attempts, 'dues', dues,
    'reasons', reasons, 'errors', errors)
end
