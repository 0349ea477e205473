-- What a claim takes from: the lists ready and retry in their order, the zset ranked by rank, and lines of what limits held
-- back. A source reads ahead; its entries are removed when the claim has ended.
local scan_limit, seen, limiting = 0, {}, false

local function source_of(key, state, length)
  return {key = key, state = state, length = length, scanned = 0, stale = 0, first = 0, found = {}, records = {}}
end

-- Reads the records of what was found, and under limits the attributes.
local function read_records(source, deliveries, attributes)
  source.records = redis.call('HMGET', deliveries, unpack(source.found))
  if limiting then source.texts = redis.call('HMGET', attributes, unpack(source.found)) end
end

-- Reads the ranks of ranked only if they count: beside another source, or where a limit may hold back messages.
local function read_ahead(source, deliveries, attributes, count, beside)
  local last = source.scanned + math.min(count, scan_limit, 100) - 1
  source.first = source.scanned
  if source.state == 'ranked' and (beside or limiting) then
    local cells, found, ranks = redis.call('ZRANGE', source.key, source.first, last, 'WITHSCORES'), {}, {}
    for n = 1, #cells / 2 do found[n], ranks[n] = cells[2 * n - 1], cells[2 * n] end
    source.found, source.ranks = found, ranks
  elseif source.state == 'ranked' then
    source.found = redis.call('ZRANGE', source.key, source.first, last)
  else
    source.found = redis.call('LRANGE', source.key, source.first, last)
  end
  read_records(source, deliveries, attributes)
  scan_limit = scan_limit - #source.found
end

-- Returns where the next entry of a source is in what was read, nil at its end; `count` are wanted of it at most, `beside`
-- those of another source if there are any.
local function next_of(source, deliveries, attributes, count, beside)
  local at = source.scanned - source.first + 1
  if at <= #source.found then return at end
  if source.scanned == source.length or scan_limit <= 0 then return nil end
  read_ahead(source, deliveries, attributes, count, beside)
  return 1
end

-- Returns the rank of an entry that was read; nil for a stale one, whose id has moved elsewhere since.
local function rank_at(source, at)
  local is, due = string.match(source.records[at] or '', '^(%a+) (%d+)')
  if is ~= source.state or seen[source.found[at]] then return nil end
  return tonumber(source.ranks and source.ranks[at] or due)
end

-- Returns the one of two sources that comes first by rank (of equal ranks `one`), and the first and last of its entries, of
-- `count` at most, that come before those of the other; nil at the end of both. A stale entry is returned alone.
local function first_run(one, other, deliveries, attributes, count)
  local at = next_of(one, deliveries, attributes, count)
  local beside = other and next_of(other, deliveries, attributes, count, at)
  if not beside then return at and one, at, at and math.min(at + count - 1, #one.found) end
  if not at then return other, beside, math.min(beside + count - 1, #other.found) end
  local rank, bound = rank_at(one, at), rank_at(other, beside)
  if not rank then return one, at, at end
  if not bound then return other, beside, beside end
  if bound < rank then one, at, bound = other, beside, rank - 1 end
  local last = at
  while last < at + count - 1 and one.found[last + 1] and (rank_at(one, last + 1) or bound) <= bound do last = last + 1 end
  return one, at, last
end

local function left_in(source)
  return source.length - source.scanned
end

-- Removes what has been read of sources, and counts down the stale entries of lists.
local function remove_read(meta, ...)
  for _, source in ipairs({...}) do
    if source.scanned > 0 and source.state == 'ranked' then
      redis.call('ZREMRANGEBYRANK', source.key, 0, source.scanned - 1)
    elseif source.scanned > 0 then
      redis.call('LTRIM', source.key, source.scanned, -1)
      if source.stale > 0 then skipped(meta, 'stale_' .. source.state, source.stale) end
    end
  end
end
