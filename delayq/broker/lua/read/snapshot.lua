-- Reads a page of messages in columns: pending ones in the order of their due times, or promoted ones in the order of a
-- scan of the records.
-- KEYS: pending zset, unack zset, retries hash, messages hash, deliveries hash, headers hash, attributes hash, errors
--   hash, gathered hash
-- ARGV: now (ms or ''), states (of the records to scan for; '' for the pending), limit (ids to inspect), cursor (the id
--   after which the page begins, or that of the scan), score (of the id; '' at the start), low, high (bounds of the due
--   times of records, ms, included), byte_limit (of a page; 0 for one without payloads)
-- Returns: now (ms), cursor of the next page ('' at the end), its score, then columns: ids, due times of the pending or
--   deadlines, payload sizes, retries left, records, headers, attributes, errors, payloads; empty if no message has a
--   value. A page of pending ends at the byte limit, a scan goes on without payloads
-- Re-run: reads only.
-- Uses: bytes, clock, record, schema, gathered
local pending, unack, retries, messages, deliveries, headers, attributes, errors, gathered = unpack(KEYS)
local override, states, limit, cursor, score, low, high, byte_limit = unpack(ARGV)
local ids, times, sizes, records, payloads, next_cursor, next_score = {}, {}, {}, {}, {}, '', ''
low, high, byte_limit = tonumber(low), tonumber(high), tonumber(byte_limit)
if byte_limit > 0 then bytes_left = math.min(bytes_left, byte_limit) end
local has_headers, header_texts = redis.call('HLEN', headers) > 0, {}

-- An id is a message only while it has a payload.
local function add(id, at, record)
  local payload = byte_limit > 0 and bytes_left > 0 and read_whole(messages, attributes, gathered, id)
  local size = payload and #payload or redis.call('HSTRLEN', messages, id)
  if payload or size > 0 or redis.call('HEXISTS', messages, id) == 1 then
    local n = #ids + 1
    ids[n], times[n], sizes[n], records[n] = id, at, size, record
    if byte_limit > 0 then payloads[n] = payload end
    if has_headers then header_texts[n] = read_payload(headers, id) end
  end
end

if states == '' then
  local same = score ~= '' and redis.call('ZSCORE', pending, cursor) == score
  local start = same and redis.call('ZRANK', pending, cursor) + 1
    or score ~= '' and redis.call('ZCOUNT', pending, '-inf', '(' .. score) or 0
  local page = redis.call('ZRANGE', pending, start, start + limit - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    add(page[i], page[i + 1])
    local full = bytes_left <= 0 or #page == 2 * limit and i == #page - 1
    if full then next_cursor, next_score = page[i], page[i + 1] break end
  end
else
  local page = redis.call('HSCAN', deliveries, cursor, 'COUNT', limit)
  if page[1] ~= '0' then next_cursor = page[1] end
  for i = 1, #page[2], 2 do
    local id, record = page[2][i], page[2][i + 1]
    local state, due = read(record)
    due = tonumber(due)
    if state and string.find(states, state, 1, true) and due >= low and due <= high then
      add(id, redis.call('ZSCORE', unack, id) or '', record)
    end
  end
end

local function column(hash, cells)
  if redis.call('HLEN', hash) == 0 then return cells end
  for first = 1, #ids, 1000 do
    local found = redis.call('HMGET', hash, unpack(ids, first, math.min(first + 999, #ids)))
    for n, cell in ipairs(found) do cells[first + n - 1] = cell end
  end
  return cells
end

local retry_counts = column(retries, {})
for n = 1, #ids do retry_counts[n] = retry_counts[n] or DEFAULT_RETRIES end
return {math.floor(clock(override) / 1000), next_cursor, next_score, ids, times, sizes, retry_counts,
  states == '' and column(deliveries, {}) or records, header_texts,
  column(attributes, {}), column(errors, {}), payloads}
