-- Delivers messages: what the blocking read of this process has got, then what is past its lease, then what is new.
-- KEYS: stream stream, ids set, dead stream, errors hash, delays hash, meta hash, replies hash
-- ARGV: slot, sequence, group, holder, waiter (the consumer of the blocking read), wanted (messages, 0 to give back
--   what it has got; of more than 250, so many), lease (ms), idle (ms of the lease that are over at once), retries (of
--   messages that do not say), dead_max (entries)
-- Returns: now (ms), deadline (ms), 1 if there is more, then arrays: entries, deliveries, fields
-- Re-run: returns what is still held under the remembered deliveries, with its lease renewed.
-- Uses: clock, once, pel, give, bury, sweep
local stream, ids, dead, errors, delays, meta, replies = unpack(KEYS)
local slot, sequence, group, holder, waiter, wanted, lease, idle, retries, dead_max = unpack(ARGV, 1, 10)
local now = math.floor(clock('') / 1000)
local entries, deliveries, bodies, pairs_held, behind = {}, {}, {}, {}, false
wanted, lease = math.min(tonumber(wanted), 250), tonumber(lease)

local function hold(entry, delivery, body)
  local n = #entries + 1
  entries[n], deliveries[n], bodies[n], pairs_held[n] = entry, delivery, body, entry .. ' ' .. delivery
end

local function deliver(entry, delivery, body)
  give(stream, group, holder, entry, idle, delivery)
  hold(entry, delivery, body)
end

local function wished() return wanted - #entries end

local function answer()
  local more = wanted > 0 and (behind or #entries == wanted and undelivered(stream, find_group(stream, group)))
  return {now, now + lease - idle, more and 1 or 0, entries, deliveries, bodies}
end

local past = answered(replies, slot, sequence)
local known = find_group(stream, group)
if not known and (past or wanted == 0) then return {now, now, 0, {}, {}, {}} end
if past then
  begin(replies, '') -- forgets nothing, for no slot has this name: renewing could not begin when Redis is full
  for entry, delivery in string.gmatch(past, '(%S+) (%d+)') do
    local body = holds(stream, group, holder, entry, delivery) and read(stream, entry)
    if body then deliver(entry, tonumber(delivery), body) end
  end
  return answer()
end

redis.call('XLEN', dead)
redis.call('SCARD', ids)
for _, hash in ipairs({errors, meta}) do redis.call('HLEN', hash) end
local delayed = redis.call('HLEN', delays) > 0
begin(replies, slot)
if not known then redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM') end

-- Takes over an entry, of which a deleted one is left in the list at most.
local function recover(entry)
  local body, at = read(stream, entry), delayed and redis.call('HGET', delays, entry)
  local delivery = body and redis.call('XPENDING', stream, group, entry, entry, 1)[1][4]
  if not body then
    remove(stream, group, errors, delays, entry)
  elseif at and tonumber(at) > now then
    give(stream, group, nobody, entry, math.max(lease - (at - now), 0), delivery)
  elseif delivery > budget(body, retries) then
    bury(stream, group, ids, dead, errors, delays, dead_max, entry, body, delivery, 'retries spent', '')
  else
    if at then redis.call('HDEL', delays, entry) end
    deliver(entry, delivery + 1, body)
  end
end

for _, one in ipairs(redis.call('XPENDING', stream, group, '-', '+', wanted > 0 and wanted or 250, waiter)) do
  local body = read(stream, one[1])
  if body and wanted > 0 then
    deliver(one[1], one[4], body)
  elseif body and #body > most_cells then
    give(stream, group, nobody, one[1], lease, one[4] - 1)
  else
    -- A message that was never claimed goes back as a new entry: that wakes the next reader, which nothing else does.
    remove(stream, group, errors, delays, one[1])
    if body then redis.call('XADD', stream, '*', unpack(body)) end
  end
end
behind = sweep(stream, group, holder, meta, now, lease, wished, recover)
if wished() > 0 then
  local fresh = redis.call('XREADGROUP', 'GROUP', group, holder, 'COUNT', wished(), 'STREAMS', stream, '>')
  fresh = fresh and type(fresh[1]) == 'table' and fresh[1] or fresh or {} -- embedded, there is no list around it
  for _, one in ipairs(fresh[2] or {}) do
    hold(one[1], 1, one[2])
    if idle ~= '0' then give(stream, group, holder, one[1], idle, 1) end
  end
end
remember(replies, slot, sequence, now, table.concat(pairs_held, ' '))
return answer()
