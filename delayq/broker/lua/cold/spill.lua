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
if schema == '7' or (own or folder) ~= folder or now - oldest > FRESH or #(moved or '') ~= tonumber(first)
  or string.find(moved or '', '[^01]') then
  begin(meta, slot)
  return remember(meta, slot, sequence, now, '-')
end

local ids, statuses, leaving, dues, seen = {}, {}, {}, {}, {}
for i = 8, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local function is_used(hash) return redis.call('HLEN', hash) > 0 end

local function texts_of(hash)
  local text = is_used(hash) and payloads_of(hash, ids, #ids, 100)
  return function(n) return text and text(n) or '' end
end

local times, counts, held = redis.call('ZMSCORE', pending, unpack(ids)), retries_of(retries, ids), settled(done, now, ids)
local delivered = is_used(deliveries) and redis.call('HMGET', deliveries, unpack(ids)) or {}
local change = is_used(cold_changes) and redis.call('HMGET', cold_changes, unpack(ids)) or {}
local payload_of, header_of, attributes_of = payloads_of(messages, ids, #ids, 100), texts_of(headers), texts_of(attributes)

local function is_as_filed(n, due, filed)
  local payload = times[n] and time_of(times[n]) == due and not delivered[n] and not change[n] and payload_of(n)
  if not payload then return false end
  local text = attributes_of(n)
  for _, word in ipairs(text ~= '' and STAYING or {}) do
    if string.find(' ' .. text, word, 1, true) then return false end
  end
  return table.concat({counts[n], header_of(n), text, payload}, '\n') == filed
end

for n, id in ipairs(ids) do
  if bytes_left <= 0 then break end
  local due = ARGV[3 * n + 6]
  local goes = not held[n] and not seen[id] and is_as_filed(n, due, ARGV[3 * n + 7])
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
