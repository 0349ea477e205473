-- Whether a message is in the one place that its record names: in pending (1), unack (2), garbage (3), or in the list
-- ready or retry (4), where looking takes as long as the list is.
local places = {pending = 1, leased = 2, backoff = 2, garbage = 3, ready = 4, retry = 4}

-- Returns what is known of each id: its place, where it is held, where it is so besides its place, and a digit; false
-- for one that waits in pending for its first delivery, as it should.
local function examine(pending, unack, garbage, retries, messages, deliveries, headers, errors, ids)
  local dues, deadlines = redis.call('ZMSCORE', pending, unpack(ids)), redis.call('ZMSCORE', unack, unpack(ids))
  local records, budgets = redis.call('HMGET', deliveries, unpack(ids)), redis.call('HMGET', retries, unpack(ids))
  local found, any_spent = {}, redis.call('SCARD', garbage) > 0
  for n, id in ipairs(ids) do
    local spent = any_spent and redis.call('SISMEMBER', garbage, id) == 1
    local gone = redis.call('HEXISTS', messages, id) == 0
    found[n] = false
    if gone or records[n] or deadlines[n] or spent or not dues[n] or not budgets[n] then
      local one = {id = id, gone = gone, also = {}, record = {read(records[n] or '')}, budget = budgets[n]}
      one.state = places[one.record[1]] and one.record[1]
      one.place, one.torn = places[one.state] or 1, records[n] and not one.state
      one.held = {dues[n], deadlines[n], spent}
      for place = 1, 3 do
        if one.held[place] and place ~= one.place then table.insert(one.also, place) end
      end
      local held, second = one.held[one.place], #one.also > 0
      if gone then
        local remains = redis.call('HEXISTS', headers, id) + redis.call('HEXISTS', errors, id) > 0
        one.digit = (held or second) and '1' or (records[n] or budgets[n] or remains) and '4' or '0'
      elseif one.place == 4 then
        one.digit = one.state == 'ready' and '7' or '8'
      else
        one.digit = not held and '2' or second and '3' or one.torn and '6' or not one.budget and '5' or '0'
      end
      found[n] = one
    end
  end
  return found
end

-- Looks for an id in the list that its record names, and says what is wrong with it.
local function search(list, one)
  one.held[4] = redis.call('LPOS', list, one.id)
  one.digit = not one.held[4] and '2' or #one.also > 0 and '3' or not one.budget and '5' or '0'
end
