-- Takes messages out of the queue that are in a file of the cold tier, each only if it is still as the file has it and
-- waits for its first delivery, and notes which: these are the file's from now on. The first ones, if they are large.
-- KEYS: pending zset, retries hash, messages hash, deliveries hash, headers hash, attributes hash, errors hash,
--   events stream, done zset, cold hash, cold_changes hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), folder (its id), file, first (how many of the file were asked for before), oldest
--   (ms: when they were read at the earliest), then per message: id, due (ms), text (its retries, headers,
--   attributes and payload, separated by newlines)
-- Returns: a status per message: 1 moved, 0 stays; - for a file that was given up, or a folder that is not the queue's
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, erase, log, done
local pending, retries, messages, deliveries, headers, attributes, errors, events, done, cold, cold_changes, meta = unpack(KEYS)
local slot, sequence, override, folder, file, first, oldest = unpack(ARGV, 1, 7)
local past, logged, schema = begun(meta, done, slot, sequence)
if past then return past end

-- For so long (ms) a file may be written before its messages are taken: by then nobody has given it up and forgotten it.
local FRESH = 3600000
-- What a script still changes while a message waits, or what it holds by its id, stays.
local STAYING = {' since=', ' collect=', ' gathers=', ' joins=', ' unique_'}

local now = math.floor(clock(override) / 1000)
redis.call('ZCARD', pending)
for _, hash in ipairs({retries, headers, attributes, errors}) do redis.call('HLEN', hash) end
local field = 'moved ' .. file
local moved, own = unpack(redis.call('HMGET', cold, field, 'folder'))
local changed = redis.call('HLEN', cold_changes) > 0
if schema == '7' or (own or folder) ~= folder or now - oldest > FRESH or #(moved or '') ~= tonumber(first)
  or string.find(moved or '', '[^01]') then
  begin(meta, slot)
  return remember(meta, slot, sequence, now, '-')
end

local function is_as_filed(id, due, filed)
  local at = redis.call('ZSCORE', pending, id)
  local payload = at and time_of(at) == due and redis.call('HEXISTS', deliveries, id) == 0 and read_payload(messages, id)
  if not payload or changed and redis.call('HEXISTS', cold_changes, id) == 1 then return false end
  local text = read_payload(attributes, id) or ''
  for _, word in ipairs(STAYING) do
    if string.find(' ' .. text, word, 1, true) then return false end
  end
  local parts = {retries_of(retries, {id})[1], read_payload(headers, id) or '', text, payload}
  return table.concat(parts, '\n') == filed
end

local ids, statuses, leaving, dues, seen = {}, {}, {}, {}, {}
for i = 8, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local held = settled(done, now, ids)
for n, id in ipairs(ids) do
  if bytes_left <= 0 then break end
  local due = ARGV[3 * n + 6]
  local goes = not held[n] and not seen[id] and is_as_filed(id, due, ARGV[3 * n + 7])
  statuses[n] = goes and '1' or '0'
  if goes then seen[id], leaving[#leaving + 1], dues[#dues + 1] = true, id, due end
end
local reply = table.concat(statuses)
begin(meta, slot)
if #leaving > 0 then
  redis.call('ZREM', pending, unpack(leaving))
  erase(messages, retries, deliveries, headers, attributes, errors, leaving)
  increase(meta, 'cold', #leaving)
end
if schema ~= '8' then redis.call('HSET', meta, 'schema', '8') end
redis.call('HSET', cold, 'folder', folder, field, (moved or '') .. reply)
remember(meta, slot, sequence, now, reply)
log(events, meta, logged, 'spilled', now, 'ids', leaving, 'dues', dues)
return reply
