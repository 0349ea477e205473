-- What of lines may start: of names and, in `key_lines`, of keys (see `key`).

-- Returns a limit that holds nothing back any more, under which a line is let go.
local function let_go(scope, number)
  local one = read_limit(string.format('%.0f 0 1 0 0 - 0 0 0 ', number))
  one.key, one.lined, limiting.known[scope] = number >= first_template, true, one
  return one
end

-- Returns what of a line may start now, up to a number, as a source of a claim.
local function line_source(limits, gates, throttled, running, deliveries, attributes, number, most)
  local low, high = line_of(number)
  local first = redis.call('ZRANGEBYSCORE', throttled, low, high, 'LIMIT', 0, 1)[1]
  local one = limit_of_message(limits, gates, running, {redis.call('HGET', attributes, first)}, 1)
  if not one or one.number ~= number then -- its limit is gone: nothing holds it back
    one = let_go(number >= first_template and removed_template(limits, number) or number, number)
  end
  local count = starts_of(one, most)
  local source = source_of(throttled, 'throttled', count)
  if count > 0 then
    source.found = redis.call('ZRANGEBYSCORE', throttled, low, high, 'LIMIT', 0, count)
    read_records(source, deliveries, attributes)
  end
  source.length, source.limit = #source.found, one
  return source
end

-- Reads the first entries of the line of a key, as a source with those of them that are not stale.
local function read_key_line(throttled, key_lines, number, most)
  local low, high = key_line_of(number)
  local entries = redis.call('ZRANGEBYLEX', key_lines, low, high, 'LIMIT', 0, most)
  local orders, ids_read, source = {}, {}, source_of(throttled, 'throttled', 0)
  source.entries, source.ranks, source.gone, source.read = {}, {}, {}, #entries
  for n, entry in ipairs(entries) do orders[n], ids_read[n] = string.match(entry, '^%d+ (%d+) (.*)$') end
  for n, score in ipairs(#entries > 0 and redis.call('ZMSCORE', throttled, unpack(ids_read)) or {}) do
    if score and score % span == tonumber(orders[n]) and tonumber(score) >= first_template * span then
      local at = #source.found + 1
      source.entries[at], source.ranks[at], source.found[at] = entries[n], orders[n] + epoch, ids_read[n]
    else
      source.gone[#source.gone + 1] = entries[n]
    end
  end
  return source
end

-- Returns what of the line of a key may start, up to a number, as a source of a claim; nil for nothing but stale entries.
local function key_source(limits, gates, throttled, running, key_lines, deliveries, attributes, number, most)
  local source = read_key_line(throttled, key_lines, number, 4) -- few keys have more places
  if #source.gone == 4 then source = read_key_line(throttled, key_lines, number, 100) end
  local one = limit_of_key(limits, running, gates, source.found[1] and redis.call('HGET', attributes, source.found[1]))
  if source.found[1] and (not one or one.number ~= number) then one = let_go(number, number) end -- its template is gone
  local count = one and starts_of(one, most) or 0
  if count > #source.found and source.read == 4 then
    source = read_key_line(throttled, key_lines, number, count + #source.gone)
  end
  for _, entry in ipairs(source.gone) do limiting.unlined[#limiting.unlined + 1] = entry end
  if not source.found[1] then
    limiting.emptied[number], limiting.more = source.read < 100 or nil, limiting.more or source.read == 100
    return nil
  end
  count = math.min(count, #source.found)
  for at = #source.found, count + 1, -1 do source.found[at] = nil end
  if count > 0 then read_records(source, deliveries, attributes) end
  source.length, source.limit = count, one
  return source
end

-- Notes what a claim has taken of a line.
local function take_out(source)
  for n = 1, source.scanned do
    limiting.gone[#limiting.gone + 1] = source.found[n]
    if source.entries then limiting.unlined[#limiting.unlined + 1] = source.entries[n] end
  end
end

-- Stores what has changed in the lines of keys, but for their gates. Opens those of keys whose places are taken by messages
-- that now take one of another key: they were replaced. Without any limit and place, nothing is limited any more.
local function settle_keys(limits, gates, running, key_lines, meta)
  if #limiting.unlined > 0 then redis.call('ZREM', key_lines, unpack(limiting.unlined)) end
  if #limiting.lines > 0 then redis.call('ZADD', key_lines, unpack(limiting.lines)) end
  local ids, open = {}, {}
  for n = 2, #limiting.places, 2 do ids[n / 2] = limiting.places[n] end
  for n, place in ipairs(#ids > 0 and redis.call('ZMSCORE', running, unpack(ids)) or {}) do
    local before = place and string.sub(ids[n], 1, 1) == ' ' and place - place % 2
    if before and before ~= math.floor(limiting.places[2 * n - 1] / 2) * 2 then
      open[#open + 1], open[#open + 2] = 0, string.format('%.0f', before)
    end
  end
  if #open > 0 then redis.call('ZADD', gates, 'XX', unpack(open)) end
  if limiting.none and #ids == 0 and redis.call('EXISTS', running, gates) == 0 then redis.call('HDEL', meta, 'limited') end
end
