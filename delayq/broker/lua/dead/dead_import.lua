-- Puts messages that died in another queue into the dead letter, each under the time of its death. Left out are ids that
-- live, deaths that are there, and ids that were settled after that death.
-- KEYS: messages hash, dead zset, dead_messages hash, dead_ids hash, completed zset, done zset, events stream, runs hash,
--   meta hash
-- ARGV: slot, sequence, now (ms or ''), run ('' for none), then per message: id, died (ms, '' for now: it was about to
--   die), due (ms, '' for when it died), retries (that it was sent with), attempts, reason, error, headers, attributes, payload
-- Returns: a status for each message: 1 new, 0 exists, 5 settled since
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, attributed, dead, known_deaths, done, log, run
local messages, dead, dead_messages, dead_ids, completed, done, events, runs, meta = unpack(KEYS)
local slot, sequence, override, run = unpack(ARGV, 1, 4)
local past, logged = begun(meta, done, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
for _, hash in ipairs({dead_messages, runs}) do redis.call('HLEN', hash) end
local statuses, deaths, attributed, unique = {}, {}, false, false

-- Returns whether an id was settled after a death that holds it until `ends`: not by a death that was imported.
local function is_settled_since(id, died, ends, text, found)
  if not found.held then
    local score = tonumber(redis.call('ZSCORE', done, id))
    found.held, found.has_end = score and held_until(score) or 0, score and score % 1 > 0
    found.by_death = found.imported[score]
  end
  local by_death = found.by_death or found.has_end and found.last > died
  if not by_death and found.held > math.max(now, ends) then return true end
  local kept = redis.call('ZSCORE', completed, id)
  return kept and kept - (string.match(text, 'retention=(%d+)') or 0) > died
end

for i = 5, #ARGV, 10 do
  local id, died, text, status = ARGV[i], tonumber(ARGV[i + 1]) or now, ARGV[i + 8], '1'
  local entries, ends = entries_of(dead, dead_ids, id), died + window
  for held in string.gmatch(text, 'unique_%a+=(%d+)') do ends = math.max(ends, died + held) end
  local has_time = ARGV[i + 1] ~= ''
  local is_there = has_time and entries.times[died] or has_life(dead_messages, id, has_time, ARGV[i + 4], ARGV[i + 2])
  if is_there or redis.call('HEXISTS', messages, id) == 1 then
    status = '0'
  elseif is_settled_since(id, died, ends, text, entries) then
    status = '5'
  else
    -- The time of the death is its token: it is earlier than every one that is drawn from now on.
    local number = math.min(died, now - 1) * 1000
    while entries.died[string.format('%.0f', number)] do number = number + 1 end
    local token, due = string.format('%.0f', number), tonumber(ARGV[i + 2]) or died
    add_known_entry(entries, token, died, string.format('%d 0 %.0f ', ARGV[i + 4], due))
    deaths[#deaths + 1] = {id = id, died = died, token = token, due = due,
      attempts = ARGV[i + 4], left = ARGV[i + 3] - ARGV[i + 4] + 1, reason = ARGV[i + 5], error = ARGV[i + 6],
      headers = ARGV[i + 7], attributes = text, payload = ARGV[i + 9]}
    if ends > math.max(now, died, entries.held) then
      entries.held, entries.by_death = ends, true
      note_held(id, died, ends)
    end
    if text ~= '' then attributed = true end
    unique = unique or string.find(text, 'unique_%a+=')
    note_kinds(text)
  end
  statuses[#statuses + 1] = status
end

-- Adds before it removes, as a send: a full Redis must refuse its first write.
local ids, tokens, attempts, dues, reasons, errors = {}, {}, {}, {}, {}, {}
for n, death in ipairs(deaths) do
  local all = entries_of(dead, dead_ids, death.id).tokens
  add_dead_entry(dead, dead_messages, dead_ids, death.died, death.id, death)
  if #all > 1 then
    table.sort(all, function(one, other) return tonumber(one) < tonumber(other) end)
    redis.call('HSET', dead_ids, death.id, table.concat(all, ' '))
  end
  ids[n], tokens[n], attempts[n], dues[n] = death.id, death.token, death.attempts, string.format('%.0f', death.due)
  reasons[n], errors[n] = death.reason, death.error
end
if #ids > 0 then
  increase(meta, 'dead_imported', #ids)
  if attributed then note_attributes(meta) end
  if unique then redis.call('HSET', meta, 'unique', '1') end
  hold(done, now)
  if holds then forget(done, now, 2 * #ids) end
end
local reply = table.concat(statuses)
if run ~= '' then add_up(runs, run, now, reply) end
remember(meta, slot, sequence, now, reply)
log(events, meta, logged, 'dead_imported', now, 'run', run, 'ids', ids, 'tokens', tokens, 'attempts', attempts,
  'dues', dues, 'reasons', reasons, 'errors', errors)
return reply
