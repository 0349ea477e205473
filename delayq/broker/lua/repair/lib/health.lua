-- Checks that a message is in the one location that its record names: in pending (1), unack (2), garbage (3), ranked (4),
-- throttled (6), or in the list ready or retry (5). Searching a list takes time in proportion to its length.
local locations = {pending = 1, leased = 2, backoff = 2, garbage = 3, ranked = 4, ready = 5, retry = 5, throttled = 6}

-- Returns whether a time never comes: one of another program that is infinite, or later than delayq writes any.
local function is_never(score) return score and tonumber(score) > 7258118399999 end

-- Returns whether what waits for a place of its key, by its score in `throttled`, is in the line of the key.
local function is_in_line(key_lines, attributes, id, score)
  if tonumber(score) < first_template * span then return score end
  local key = key_in(redis.call('HGET', attributes, id))
  return key and redis.call('ZSCORE', key_lines, key_entry(key_number(key), score % span, id))
end

-- Returns whether a message may have a place of its key: it runs, waits for its name, or keeps the place until it ends.
local function may_have_place(one, place, deadline, score)
  if one.gone or one.state == 'garbage' then return false end
  if one.state == 'leased' then return deadline end
  if one.state == 'throttled' then return score and tonumber(score) < first_template * span end
  return place % 2 == 1 or one.location == 1
end

-- Returns what is stored about each id: its expected location, where it was found, other locations, and a status; false
-- for a correct message that waits in pending for its first delivery.
local function examine(pending, ranked, throttled, running, key_lines, unack, garbage, retries, messages, deliveries, headers, attributes,
  errors, successors, ids)
  local dues, deadlines = redis.call('ZMSCORE', pending, unpack(ids)), redis.call('ZMSCORE', unack, unpack(ids))
  local ranks, lines = redis.call('ZMSCORE', ranked, unpack(ids)), redis.call('ZMSCORE', throttled, unpack(ids))
  local places, members = redis.call('ZMSCORE', running, unpack(ids)), {}
  for n, id in ipairs(ids) do members[n] = ' ' .. id end
  local key_places = redis.call('ZMSCORE', running, unpack(members))
  local records, retry_counts = redis.call('HMGET', deliveries, unpack(ids)), redis.call('HMGET', retries, unpack(ids))
  local found, any_spent = {}, redis.call('SCARD', garbage) > 0
  for n, id in ipairs(ids) do
    local spent = any_spent and redis.call('SISMEMBER', garbage, id) == 1
    local gone = redis.call('HEXISTS', messages, id) == 0
    found[n] = false
    if gone or records[n] or deadlines[n] or ranks[n] or lines[n] or places[n] or key_places[n] or spent or not dues[n] or is_never(dues[n]) or not whole(retry_counts[n] or DEFAULT_RETRIES) then
      local record = {read(records[n] or '')}
      local one = {id = id, gone = gone, elsewhere = {}, record = record, retry_count = whole(retry_counts[n] or DEFAULT_RETRIES)}
      one.state = locations[one.record[1]] and one.record[1]
      one.location, one.unreadable = locations[one.state] or 1, records[n] and not one.state
      local lined = lines[n] and is_in_line(key_lines, attributes, id, lines[n])
      one.found_in = {dues[n], deadlines[n], spent, ranks[n], false, lined}
      if lines[n] and not lined then table.insert(one.elsewhere, 6) end
      for location = 1, 6 do
        if one.found_in[location] and location ~= one.location then table.insert(one.elsewhere, location) end
      end
      local present, second = one.found_in[one.location], #one.elsewhere > 0
      one.never = not gone and one.location <= 2 and is_never(present)
      if gone then
        local remains = redis.call('HEXISTS', headers, id) + redis.call('HEXISTS', attributes, id)
          + redis.call('HEXISTS', errors, id) > 0 or records[n] or retry_counts[n]
          or redis.call('HEXISTS', successors, id) == 1
        one.status = (present or second) and '1' or remains and '4' or '0'
      elseif one.location == 5 then
        one.status = one.state == 'ready' and '7' or '8'
      else
        one.status = not present and '2' or second and '3' or one.unreadable and '6'
          or one.never and 'b' or not one.retry_count and '5' or '0'
      end
      one.placed = places[n] and (gone or one.state ~= 'leased' or not deadlines[n])
        or key_places[n] and not may_have_place(one, key_places[n], deadlines[n], lines[n])
      found[n] = one
    end
  end
  return found
end

-- Searches an id in the list that its record names, and sets its status.
local function search_list(list, one)
  one.found_in[5] = redis.call('LPOS', list, one.id)
  one.status = not one.found_in[5] and '2' or #one.elsewhere > 0 and '3' or not one.retry_count and '5' or '0'
end
