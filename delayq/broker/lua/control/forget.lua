-- Forgets what is kept of ids without a message: results, dead messages, reservations, and what was left behind.
-- KEYS: retries hash, messages hash, deliveries hash, headers hash, attributes hash, errors hash, successors hash,
--   gathered hash, dead zset, dead_messages hash, dead_ids hash, completed zset, results hash, done zset, meta hash
-- ARGV: slot, sequence, now (ms or ''), fix (1 to forget, 0 to count), then ids, and fields of gathered
-- Returns: a status for each of the first: 1 forgotten, 2 alive, 3 call again for more deaths, 0 unknown; then how many
--   results, deaths, reservations and remains
-- Re-run: returns the same reply; a call that only inspects is not remembered and runs again.
-- Uses: clock, numbers, once, dead
local retries, messages, deliveries, headers, attributes, errors, successors, gathered, dead, dead_messages, dead_ids,
  completed, results, done, meta = unpack(KEYS)
local slot, sequence, override, fix = unpack(ARGV, 1, 4)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
redis.call('ZCARD', dead)
redis.call('HLEN', dead_messages)
redis.call('ZCARD', completed)
local statuses, seen, ids, fields, entries, counts = {}, {}, {}, {}, {}, {0, 0, 0, 0}

local function note(at, found)
  counts[at] = counts[at] + found
  return found > 0
end

-- Notes the entries of an id in the dead letter, to be deleted up to a thousand of a call; returns whether there are more.
local function note_deaths(id)
  for token in string.gmatch(redis.call('HGET', dead_ids, id) or '', '%d+') do
    if fix == '1' and #entries == 1000 then return true end
    entries[#entries + 1] = id .. ':' .. token
  end
end

for i = 5, #ARGV do
  local id, status = ARGV[i], '0'
  local owner = string.match(id, '^([^\n]*)\n') or id
  if #entries >= 1000 then break end
  if redis.call('HEXISTS', messages, owner) == 1 then
    status = '2'
  elseif owner ~= id then
    if not seen[id] and note(4, redis.call('HEXISTS', gathered, id)) then status, fields[#fields + 1] = '1', id end
  elseif not seen[id] then
    local before, remains = #entries, 0
    local more = note_deaths(id)
    for _, hash in ipairs({retries, deliveries, headers, attributes, errors, successors}) do
      if redis.call('HEXISTS', hash, id) == 1 then remains = 1 end
    end
    local died = note(2, #entries - before)
    local kept = note(1, redis.call('HEXISTS', results, id))
    local held = note(3, redis.call('ZSCORE', done, id) and 1 or 0)
    local left = note(4, remains)
    status = more and '3' or (died or kept or held or left) and '1' or '0'
    ids[#ids + 1] = id
  end
  seen[id], statuses[#statuses + 1] = true, status
end
local reply = table.concat(statuses) .. ' ' .. table.concat(counts, ' ')
if fix == '0' then return reply end

begin(meta, slot)
if #entries > 0 then
  remove_dead_entries(dead, dead_messages, dead_ids, entries)
  increase(meta, 'dead_purged', #entries)
end
if #ids > 0 then
  redis.call('HDEL', results, unpack(ids))
  redis.call('ZREM', completed, unpack(ids))
  redis.call('ZREM', done, unpack(ids))
  for _, hash in ipairs({retries, deliveries, headers, attributes, errors, successors}) do
    redis.call('HDEL', hash, unpack(ids))
  end
end
if #fields > 0 then redis.call('HDEL', gathered, unpack(fields)) end
return remember(meta, slot, sequence, now, reply)
