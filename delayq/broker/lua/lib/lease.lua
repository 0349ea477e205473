-- The messages of a claim, collected first and leased together. A reply holds seven cells for each, after what a script
-- puts before them.
local cells, ids, tokens, dues, attempts, records, deadlines = {}, {}, {}, {}, {}, {}, {}
local headed, attributed = false, false

-- Notes the hashes of headers and attributes, if any message has some: only then a claim reads them.
local function look_at_extras(headers, attributes)
  if redis.call('EXISTS', headers, attributes) == 0 then return end
  headed = redis.call('HLEN', headers) > 0 and headers
  attributed = redis.call('HLEN', attributes) > 0
end

local function claim(deadline, id, token, payload, due, attempt, first, holder, text)
  local n = #ids + 1
  local at = 7 * n
  cells[at - 6], cells[at - 5], cells[at - 4], cells[at - 3], cells[at - 2] = id, token, payload, due, attempt
  cells[at - 1], cells[at] = headed and read_payload(headed, id), text or false
  ids[n], tokens[n], dues[n], attempts[n] = id, token, due, attempt
  records[2 * n - 1], records[2 * n] = id, write('leased', due, attempt, first, token, holder)
  deadlines[2 * n - 1], deadlines[2 * n] = deadline, id
end

-- Collects what is still leased under the tokens that a claim has remembered; returns whether it is to run alone.
local function claim_again(past, messages, deliveries, deadline)
  local alone = false
  for id, token in string.gmatch(past, '(%S+) (%S+)') do
    local state, due, attempt, first, last, holder = read(redis.call('HGET', deliveries, id) or '')
    local payload = state == 'leased' and last == token and read_payload(messages, id)
    if payload then
      claim(deadline, id, token, payload, due, attempt, first, holder)
      alone = mark_of(holder) == '!'
    end
  end
  return alone
end

-- Leases what was claimed. The attributes of all are read in one command, unless they are known: as delayq writes them,
-- they are short.
local function lease_all(unack, deliveries, attributes, known)
  if #ids == 0 then return end
  local texts = attributed and not known and redis.call('HMGET', attributes, unpack(ids)) or {}
  for n, text in ipairs(texts) do cells[7 * n] = text end
  redis.call('ZADD', unack, unpack(deadlines))
  redis.call('HSET', deliveries, unpack(records))
end
