-- Stores a batch of another partition, once: messages with their attempts, each as it waited; reserved ids and results. An
-- id that has a message here keeps this one, which was sent later.
-- KEYS: pending zset, unack zset, running zset, garbage set, retries hash, messages hash, deliveries hash, headers hash,
--   attributes hash, errors hash, successors hash, gathered hash, completed zset, results hash, done zset, moving hash,
--   meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), source (name of the partition), number (of the batch), batch
-- Returns: 1 stored, 2 it has arrived before; then a status for each message of it: 1 stored,
--   0 its id exists
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, schema, lasting, record, attributed, signal, follower, done, pack, batch,
--   moved_messages
local pending, unack, running, garbage, retries, messages, deliveries, headers, attributes, errors, successors, gathered,
  completed, results, done, moving, meta, wake = unpack(KEYS)
local slot, sequence, override, source, number, batch = unpack(ARGV)
local past, _, _, limited = begun(meta, done, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
for _, hash in ipairs({retries, deliveries, headers, attributes, errors, successors, gathered, results, moving}) do
  redis.call('HLEN', hash)
end
for _, zset in ipairs({pending, unack, running, completed, done}) do redis.call('ZCARD', zset) end
redis.call('SCARD', garbage)
redis.call('LLEN', wake)
local status, statuses, stored, kept, attributed, asked =
  arrival(moving, 'messages', source, number), {}, {}, {}, false, false
local next_cell, token = cells_of(status == '1' and batch or ''), '0'

local function read_message()
  local one, entries = next_named(next_cell, 'id at record left payload header text error after place'), {}
  for n = 1, 2 * next_cell() do entries[n] = next_cell() end
  one.entries = entries
  local exists = redis.call('HEXISTS', messages, one.id) == 1
  statuses[#statuses + 1] = exists and '0' or '1'
  if exists then return end
  stored[#stored + 1] = one
  one.state, _, _, _, one.token = read(one.record)
  token = one.token and tonumber(one.token) > tonumber(token) and one.token or token
  attributed = attributed or one.text .. one.after ~= ''
  note_kinds(one.text)
  note_kinds(attributes_in(one.after) or '')
  if #entries > 0 then prioritized, newest = true, true end -- as for a group that begins
end

local function read_reserved()
  local id, text = next_cell(), next_cell()
  local score = tonumber(text)
  local here = tonumber(redis.call('ZSCORE', done, id))
  local ends = held_until(score)
  if (here and held_until(here) or now) >= ends then return end
  asked = asked or score % 1 > 0
  scores[#scores + 1], scores[#scores + 2], last_held = text, id, math.max(last_held, ends)
end

local function read_result()
  local one = next_named(next_cell, 'id ends record')
  if redis.call('HEXISTS', results, one.id) == 0 then kept[#kept + 1] = one end
end

local readers = {message = read_message, reserved = read_reserved, result = read_result}
for kind in next_cell do readers[kind]() end
-- Adds before it removes, as a send: a full Redis must refuse its first write.
place_moved(pending, unack, garbage, meta, wake, stored)
store_column(messages, stored, 'payload')
store_column(retries, stored, 'left')
store_column(deliveries, stored, 'record')
store_column(headers, stored, 'header')
store_column(attributes, stored, 'text')
store_column(errors, stored, 'error')
store_column(successors, stored, 'after')
for _, one in ipairs(stored) do
  if one.place ~= '' and string.sub(limited or '', 1, 8) == 'running ' then
    redis.call('ZADD', running, one.place, ' ' .. one.id)
  end
  for first = 1, #one.entries, 1000 do
    redis.call('HSET', gathered, unpack(one.entries, first, math.min(first + 999, #one.entries)))
  end
end
for _, one in ipairs(kept) do
  redis.call('HSET', results, one.id, one.record)
  redis.call('ZADD', completed, one.ends, one.id)
  let_last(tonumber(one.ends), now, 0, completed, results)
end
if attributed or #kept > 0 then note_attributes(meta) end
if asked then redis.call('HSET', meta, 'unique', '1') end
hold(done, now)
if tonumber(token) > (whole(redis.call('HGET', meta, 'token')) or 0) then redis.call('HSET', meta, 'token', token) end
if status == '1' then note_arrival(moving, 'messages', source, number) end
return remember(meta, slot, sequence, now, status .. table.concat(statuses))
