-- Delivers messages, as many as the byte budget allows: first those of this process's blocking read, then those with
-- expired leases, then new ones.
-- KEYS: stream stream, ids set, dead stream, errors hash, delays hash, meta hash, replies hash
-- ARGV: slot, sequence, group, consumer, waiter (the consumer of the blocking read), wanted (at most 250; 0 to requeue
--   what it has read), lease (ms), idle (ms: the initial idle time, shortens the lease), retries (default), dead_max
-- Returns: now (ms), deadline (ms), 1 if more messages wait, then arrays: entries, deliveries, attempts, fields, and
--   expired leases: entry, consumer, attempt, fields (not told by a re-run); 1 if the only message is to run alone
-- Re-run: returns what is still leased under the remembered deliveries, with its lease renewed, as far as it fits.
-- Uses: entries, clock, numbers, once, pel, charges, give, bury, sweep
local stream, ids, dead, errors, delays, meta, replies = unpack(KEYS)
local slot, sequence, group, consumer, waiter, wanted, lease, idle, retries, dead_max = unpack(ARGV, 1, 10)
local now = math.floor(clock('') / 1000)
local entries, deliveries, attempts, bodies, claimed, lost, more_expired, alone = {}, {}, {}, {}, {}, {}, false, false
wanted, lease = math.min(tonumber(wanted), 250), tonumber(lease)
local delayed = redis.call('HLEN', delays) > 0

local function add(entry, delivery, body)
  local n = #entries + 1
  entries[n], deliveries[n], bodies[n], claimed[n] = entry, delivery, body, entry .. ' ' .. delivery
  attempts[n] = delayed and delivery > 1 and math.max(charged(delays, entry, delivery), 1) or delivery
end

local function deliver(entry, delivery, body)
  give(stream, group, consumer, entry, idle, delivery)
  add(entry, delivery, body)
end

local function missing() return bytes_left > 0 and not alone and wanted - #entries or 0 end

local function make_reply()
  local more = wanted > 0 and (more_expired or missing() == 0 and undelivered(stream, find_group(stream, group)))
  -- Redis counts the idle time from the start of the script, which may be in the millisecond before.
  return {now, now + lease - idle - 1, more and 1 or 0, entries, deliveries, attempts, bodies, lost, alone and 1 or 0}
end

local past = answered(replies, slot, sequence)
local info = find_group(stream, group)
if not info and (past or wanted == 0) then return {now, now, 0, {}, {}, {}, {}, {}, 0} end
if past then
  alone = string.find(past, '^alone') ~= nil
  begin(replies, '') -- deletes nothing, as no slot has this name, but lets the renewals run when Redis is full
  for entry, delivery in string.gmatch(past, '(%d+%-%d+) (%d+)') do
    local held, fits = holds(stream, group, consumer, entry, delivery), bytes_left > 0 or #entries == 0
    local body = held and fits and read(stream, entry)
    if body then deliver(entry, tonumber(delivery), withhold(body)) end
    if held and not fits then give(stream, group, nobody, entry, lease, delivery - 1) end
  end
  return make_reply()
end

redis.call('XLEN', dead)
redis.call('SCARD', ids)
for _, hash in ipairs({errors, meta}) do redis.call('HLEN', hash) end
begin(replies, slot)
if not info then redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM') end

-- Takes over an entry with an expired lease. If its message was deleted, removes the entry from the pending list. What had
-- not started is charged nothing. It may still have ended its consumer, so one that reports starts gets it alone.
local function recover(entry, holder, delivery)
  local unstarted, reports = is_unstarted(holder), is_unstarted(consumer)
  if unstarted and reports and #entries > 0 then more_expired = true return end
  local body, at, free = read(stream, entry), nil, 0
  if delayed then at, free = note_of(delays, entry, delivery) end
  if unstarted then free = free + 1 end
  if not body then
    remove(stream, group, errors, delays, entry)
  elseif at and at > now then
    give(stream, group, nobody, entry, math.max(lease - (at - now), 0), delivery)
  elseif delivery - free > budget(body, retries) then
    bury(stream, group, ids, dead, errors, delays, dead_max, entry, body, delivery, 'retries spent', '')
  else
    delayed = delayed or unstarted
    if at or unstarted then note(delays, entry, nil, free) end
    deliver(entry, delivery + 1, body)
    alone = unstarted and reports
  end
  if body and not (at or unstarted) and holder ~= nobody then -- else it may have waited for a retry
    for _, cell in ipairs({entry, holder, delivery - free, body}) do lost[#lost + 1] = cell end
  end
end

for _, row in ipairs(redis.call('XPENDING', stream, group, '-', '+', wanted > 0 and wanted or 250, waiter)) do
  if bytes_left <= 0 then break end
  local body = read(stream, row[1])
  local delivers = body and wanted > 0
  if delivers then deliver(row[1], row[4], body) end
  if not delivers then requeue(stream, group, errors, delays, row[1], row[4], body, lease) end
end
local pending = info and field(info, 'pending') or 0
more_expired = sweep(stream, group, meta, now, lease, missing, recover, pending) or more_expired
each_entry(missing(), function(count)
  local fresh = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  fresh = fresh and type(fresh[1]) == 'table' and fresh[1] or fresh or {} -- the embedded server returns no outer list
  return fresh[2] or {}
end, function(entry, body)
  add(entry, 1, body)
  if idle ~= '0' then give(stream, group, consumer, entry, idle, 1) end
end)
remember(replies, slot, sequence, now, (alone and 'alone ' or '') .. table.concat(claimed, ' '))
return make_reply()
