-- Reads a page of the ids in one structure, a shorter one if their values are large. Reads a list from its end: pops at
-- its head do not move that.
-- KEYS: pending zset, ready list, ranked zset, throttled zset, running zset, unack zset, retry list, garbage set,
--   retries hash, messages hash, deliveries hash, headers hash, attributes hash, errors hash, successors hash, dead zset,
--   dead_messages hash, dead_ids hash, completed zset, results hash
-- ARGV: part, cursor (0 at the start), limit (ids)
-- Returns: cursor of the next page (0 at the end), ids; entries for the dead letter. For pending, ranked, retries, headers,
--   attributes, errors and successors only ids without a payload: the others are found in messages; for results only
--   those that no entry of completed names
-- Re-run: reads only.
-- Uses: bytes
local pending, ready, ranked, throttled, running, unack, retry, garbage, retries, messages, deliveries, headers,
  attributes, errors, successors, dead, dead_messages, dead_ids, completed, results = unpack(KEYS)
local part, cursor, limit = ARGV[1], ARGV[2], ARGV[3]
local lists = {ready = ready, retry = retry}
local zsets = {pending = pending, ranked = ranked, throttled = throttled, running = running, unack = unack, dead = dead}
local hashes = {retries = retries, messages = messages, deliveries = deliveries, headers = headers,
  attributes = attributes, errors = errors, successors = successors}
local others = {dead_messages = dead_messages, dead_ids = dead_ids, results = results}

if lists[part] then
  local last = -1 - cursor
  local page = redis.call('LRANGE', lists[part], last - limit + 1, last)
  return {#page < tonumber(limit) and '0' or string.format('%d', cursor + limit), page}
elseif part == 'garbage' then
  local page = redis.call('SSCAN', garbage, cursor, 'COUNT', limit)
  return {page[1], page[2]}
end
local page, ids = {}, {}
local bare = {pending = true, ranked = true, retries = true, headers = true, attributes = true, errors = true,
  successors = true}
if zsets[part] then
  page = redis.call('ZSCAN', zsets[part], cursor, 'COUNT', limit)
else
  page = scan_payloads(hashes[part] or others[part], cursor, tonumber(limit))
end
for i = 1, #page[2], 2 do
  if part == 'dead_ids' then
    for token in string.gmatch(page[2][i + 1], '%d+') do ids[#ids + 1] = page[2][i] .. ':' .. token end
  elseif part == 'results' then
    if not redis.call('ZSCORE', completed, page[2][i]) then ids[#ids + 1] = page[2][i] end
  elseif not bare[part] or redis.call('HEXISTS', messages, page[2][i]) == 0 then
    ids[#ids + 1] = part == 'running' and string.match(page[2][i], '^ (.+)$') or page[2][i] -- " id" by its key
  end
end
return {page[1], ids}
