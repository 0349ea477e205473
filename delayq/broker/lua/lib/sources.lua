-- What a claim takes from: the lists ready and retry in their order, the zset ranked by rank, and lines of what limits held
-- back. A source reads ahead; its entries are removed when the claim has ended.
local scan_limit, seen, limiting = 0, {}, false

local function source_of(key, state, length)
  return {key = key, state = state, length = length, scanned = 0, stale = 0, first = 0, found = {}, records = {}}
end

local function read_ahead(source, deliveries, attributes, count)
  local last = source.scanned + math.min(count, scan_limit, 100) - 1
  source.first = source.scanned
  if source.state == 'ranked' then
    local cells, found, ranks = redis.call('ZRANGE', source.key, source.first, last, 'WITHSCORES'), {}, {}
    for n = 1, #cells / 2 do found[n], ranks[n] = cells[2 * n - 1], cells[2 * n] end
    source.found, source.ranks = found, ranks
  else
    source.found = redis.call('LRANGE', source.key, source.first, last)
  end
  source.records = redis.call('HMGET', deliveries, unpack(source.found))
  if limiting then source.texts = redis.call('HMGET', attributes, unpack(source.found)) end
  scan_limit = scan_limit - #source.found
end

-- Returns a source whose first entry has been read, nil at its end; `count` are wanted of it at most. Skips stale
-- entries, whose ids have moved elsewhere since.
local function peek(source, deliveries, attributes, count)
  while not source.id do
    if source.scanned - source.first == #source.found then
      if source.scanned == source.length or scan_limit <= 0 then return nil end
      read_ahead(source, deliveries, attributes, count)
    end
    local at = source.scanned - source.first + 1
    local id = source.found[at]
    local is, due, attempt, first, last, holder = read(source.records[at] or '')
    if is ~= source.state or seen[id] then
      source.stale, source.scanned = source.stale + 1, source.scanned + 1
    else
      source.id, source.rank = id, source.ranks and source.ranks[at] or due
      source.due, source.attempt, source.first_token, source.token, source.holder = due, attempt, first, last, holder
      source.text = source.texts and source.texts[at]
    end
  end
  return source
end

-- Returns the one of two sources that comes first by rank, as `peek` does.
local function first_of(one, deliveries, attributes, count, other)
  local found, beside = peek(one, deliveries, attributes, count), peek(other, deliveries, attributes, count)
  if found and beside then return tonumber(beside.rank) < tonumber(found.rank) and beside or found end
  return found or beside
end

local function step_on(source)
  seen[source.id], source.id, source.scanned = true, nil, source.scanned + 1
end
