-- Packs all that is stored of ids into a batch for another partition, and takes it out of everything else: messages,
-- reserved ids and results, as many as the byte budget allows. What is leased stays.
-- KEYS: pending zset, ranked zset, throttled zset, unack zset, running zset, gates zset, garbage set, retries hash,
--   messages hash, deliveries hash, headers hash, attributes hash, errors hash, successors hash, gathered hash,
--   completed zset, results hash, done zset, moving hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), target (name of the partition), then ids
-- Returns: a status for each of the first ids: 1 moves, 2 leased, 0 nothing of it is here; then the numbers of all batches
--   that are on the same way
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, leave, erase, signal, places, follower, gathered, done, pack,
--   batch
local pending, ranked, throttled, unack, running, gates, garbage, retries, messages, deliveries, headers, attributes, errors,
  successors, gathered, completed, results, done, moving, meta, wake = unpack(KEYS)
local slot, sequence, override, target = unpack(ARGV, 1, 4)
local past, _, _, limited = begun(meta, done, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
for _, hash in ipairs({retries, headers, attributes, errors, successors, gathered, results, moving}) do
  redis.call('HLEN', hash)
end
for _, zset in ipairs({pending, ranked, throttled, unack, completed, done}) do redis.call('ZCARD', zset) end
redis.call('SCARD', garbage)
local placed = look_at_places(running, gates, wake, limited) and keyed -- what waits has no other
local statuses, moved, kept, held, seen = {}, {}, {}, {}, {}

-- Packs the entries that a group has gathered: how many, then each with its field.
local function pack_gathered(id, one)
  local count = one and math.min(one.count, redis.call('HLEN', gathered)) or 0
  add_cells(string.format('%d', count))
  for n = 1, count do
    local field = entry_field(id, one.series, one.first + n - 1)
    taken[#taken + 1] = field
    add_cells(field, read_payload(gathered, field))
  end
end

-- Packs a message: what was promoted is promoted anew, by the priorities and the limits of the other partition.
local function pack_message(id, payload, record)
  local state, due, attempts, first, token, consumer = read(record)
  local at = redis.call('ZSCORE', pending, id) or state == 'backoff' and redis.call('ZSCORE', unack, id)
  at = at and time_of(at) or due or string.format('%.0f', now)
  leave(state or 'pending', id)
  if state and state ~= 'backoff' and state ~= 'garbage' then
    record = write('pending', at, attempts, first, token, consumer)
  end
  local text, after = read_payload(attributes, id), read_payload(successors, id)
  add_cells('message', id, at, state and record, redis.call('HGET', retries, id), payload, read_payload(headers, id), text,
    read_payload(errors, id), after, placed and redis.call('ZSCORE', running, ' ' .. id))
  pack_gathered(id, group_of(text) or group_of(attributes_in(after)))
  moved[#moved + 1] = id
end

for i = 5, #ARGV do
  if bytes_left <= 0 then break end
  local id, status = ARGV[i], '0'
  local record = redis.call('HGET', deliveries, id) or ''
  if read(record) == 'leased' and redis.call('HEXISTS', messages, id) == 1 then
    status = '2'
  elseif not seen[id] then
    local payload, reserved, ends = read_payload(messages, id), redis.call('ZSCORE', done, id),
      redis.call('ZSCORE', completed, id)
    seen[id] = true
    if payload then pack_message(id, payload, record) end
    if reserved then
      held[#held + 1] = id
      add_cells('reserved', id, reserved)
    end
    if ends then
      kept[#kept + 1] = id
      add_cells('result', id, ends, read_payload(results, id))
    end
    if payload or reserved or ends then status = '1' end
  end
  statuses[#statuses + 1] = status
end
begin(meta, slot)
if #moved > 0 then
  erase(messages, retries, deliveries, headers, attributes, errors, moved)
  redis.call('HDEL', successors, unpack(moved))
  depart(pending, ranked, throttled, unack, garbage, meta)
  if placed then free_places(running, gates, wake, moved, false) end
end
for first = 1, #taken, 1000 do redis.call('HDEL', gathered, unpack(taken, first, math.min(first + 999, #taken))) end
if #held > 0 then redis.call('ZREM', done, unpack(held)) end
if #kept > 0 then
  redis.call('ZREM', completed, unpack(kept))
  redis.call('HDEL', results, unpack(kept))
end
local order = send_off(moving, 'messages', target, time)
return remember(meta, slot, sequence, now, table.concat(statuses) .. ' ' .. order)
