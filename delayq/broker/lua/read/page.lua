-- Reads one page of the messages in a state: by time if they are sorted by time, else in list order, after those that are
-- ranked by priority. What is due is ready, also while nobody has promoted it: it comes last. It ends early when the byte
-- budget is spent.
-- KEYS: pending zset, ready list, ranked zset, throttled zset, unack zset, retry list, garbage set, dead zset,
--   completed zset, retries hash, messages hash, deliveries hash, headers hash, attributes hash, errors hash,
--   dead_messages hash, results hash, gathered hash
-- ARGV: now (ms or ''), state, limit (entries to inspect), cursor ('' at the start; a member and its score, or a position),
--   score ('' for none; after a d of what is due and was not promoted), preview (bytes of payload to return), low, high
--   (bounds of the time in states sorted by time: ms, low included and high not, or -inf and +inf)
-- Returns: position of the next page ('' at the end), its score, then rows: id or entry, score, payload, payload size,
--   retries left, record, headers, attributes, error; then how many entries were inspected
-- Re-run: reads only.
-- Uses: bytes, clock, record, schema, gathered
local pending, ready, ranked, throttled, unack, retry, garbage, dead, completed, retries, messages, deliveries, headers,
  attributes, errors, dead_messages, results, gathered = unpack(KEYS)
local override, state, limit, cursor, score, preview, low, high = unpack(ARGV)
limit, preview = tonumber(limit), tonumber(preview)
local now = math.floor(clock(override) / 1000)
local lists = {ready = ready, retry = retry}
if state == 'ready' and string.sub(score, 1, 1) == 'd' then
  state, score, high = 'unpromoted', string.sub(score, 2), string.format('%.0f', now + 1)
  if score == '' then cursor = '' end
end
local begins_ranked = state == 'ready' and (score ~= '' or cursor == '' and redis.call('EXISTS', ranked) == 1)
if begins_ranked then state = 'ranked' end
local zsets = {ranked = ranked, throttled = throttled, pending = pending, unpromoted = pending, active = unack,
  backoff = unack, dead = dead, completed = completed}
local recorded = {ready = 'ready', ranked = 'ranked', throttled = 'throttled', retry = 'retry', active = 'leased',
  backoff = 'backoff'}
local rows, next_cursor, next_score, inspected = {}, '', '', 0

local function add(id, at)
  if state == 'dead' then
    local stored = read_payload(dead_messages, id) or ''
    local _, stop, reason_size, error_size, header_size, attribute_size =
      string.find(stored, '^%d+ %d+ %d+ %d+ (%d+) (%d+) (%d+) ?(%d*)\n')
    local prefix = stop and stop + reason_size + error_size + header_size + (tonumber(attribute_size) or 0) or 0
    rows[#rows + 1] = {id, at, string.sub(stored, 1, prefix + preview), #stored, '', '', '', '', ''}
    return
  end
  if state == 'completed' then
    local stored = read_payload(results, id) or ''
    rows[#rows + 1] = {id, at, stored, #stored, '', '', '', '', ''}
    return
  end
  local record = redis.call('HGET', deliveries, id) or ''
  if recorded[state] and read(record) ~= recorded[state] then return end
  local payload = preview > 0 and read_whole(messages, attributes, gathered, id) or ''
  local size = preview > 0 and #payload or redis.call('HSTRLEN', messages, id)
  rows[#rows + 1] = {id, at, string.sub(payload, 1, preview), size, retries_of(retries, {id})[1],
    record, read_payload(headers, id) or '', read_payload(attributes, id) or '', read_payload(errors, id) or ''}
end

if zsets[state] then
  -- A page begins after the last member of the page before, or after its score if that member is gone.
  local start = redis.call('ZCOUNT', zsets[state], '-inf', '(' .. low)
  if cursor ~= '' then
    local same = redis.call('ZSCORE', zsets[state], cursor) == score
    start = same and redis.call('ZRANK', zsets[state], cursor) + 1
      or redis.call('ZCOUNT', zsets[state], '-inf', '(' .. score)
  end
  if state == 'pending' then start = math.max(start, redis.call('ZCOUNT', pending, '-inf', now)) end
  local stop = math.min(start + limit, redis.call('ZCOUNT', zsets[state], '-inf', '(' .. high))
  local page = stop > start and redis.call('ZRANGE', zsets[state], start, stop - 1, 'WITHSCORES') or {}
  local mark = state == 'unpromoted' and 'd' or ''
  while 2 * inspected < #page and bytes_left > 0 do
    next_cursor, next_score, inspected = page[2 * inspected + 1], mark .. page[2 * inspected + 2], inspected + 1
    add(next_cursor, begins_ranked and '' or page[2 * inspected])
  end
  -- After what is ranked comes the list.
  if 2 * inspected == #page and inspected < limit then next_cursor, next_score = begins_ranked and '0' or '', '' end
elseif lists[state] then
  local start = tonumber(cursor ~= '' and cursor or 0)
  local page = redis.call('LRANGE', lists[state], start, start + limit - 1)
  while inspected < #page and bytes_left > 0 do
    inspected = inspected + 1
    add(page[inspected], '')
  end
  if inspected < #page or inspected == limit then
    next_cursor = string.format('%d', start + inspected)
  elseif state == 'ready' and redis.call('ZCOUNT', pending, '-inf', now) > 0 then -- and after the list what is due
    next_cursor, next_score = '0', 'd'
  end
else
  -- The cursor of a scan is that of a whole page, so its score is how many of the page to skip.
  cursor = cursor ~= '' and cursor or '0'
  local page, first = redis.call('SSCAN', garbage, cursor, 'COUNT', limit), tonumber(score ~= '' and score or 0)
  while first + inspected < #page[2] and bytes_left > 0 do
    inspected = inspected + 1
    add(page[2][first + inspected], '')
  end
  if first + inspected < #page[2] then
    next_cursor, next_score = cursor, string.format('%d', first + inspected)
  elseif page[1] ~= '0' then
    next_cursor = page[1]
  end
end
return {next_cursor, next_score, rows, inspected}
