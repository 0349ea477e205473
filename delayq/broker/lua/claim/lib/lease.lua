-- The messages of a claim, collected first and leased together. A reply holds seven cells for each, after what a script
-- puts before them.
local cells, ids, tokens, dues, attempts, records, deadlines = {}, {}, {}, {}, {}, {}, {}
local headed, attributed, put_back_count = false, false, 0
local withholds = false

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
  records[#records + 1], records[#records + 2] = id, write('leased', due, attempt, first, token, holder)
  deadlines[#deadlines + 1], deadlines[#deadlines + 2] = deadline, id
end

-- Lets others claim at once what does not fit into the reply to a claim that is made again.
local function put_back(now, id, due, attempt, first, token, holder)
  put_back_count = put_back_count + 1
  records[#records + 1] = id
  records[#records + 1] = write('backoff', due, string.format('%d', attempt - 1), first, token, unmarked(holder))
  deadlines[#deadlines + 1], deadlines[#deadlines + 2] = now, id
end

-- Collects what is still leased under the tokens that a claim has remembered; returns whether it is to run alone. The budget
-- is smaller than before if the server has closed the connection while it sent the reply. At last it `withholds` large
-- payloads: their sizes stand for them.
local function claim_again(past, messages, deliveries, now, deadline)
  local alone = false
  for id, token in string.gmatch(past, '(%S+) (%S+)') do
    local state, due, attempt, first, last, holder = read(redis.call('HGET', deliveries, id) or '')
    if state == 'leased' and last == token then
      local payload = bytes_left > 0 and read_payload(messages, id)
      if payload then
        payload = withholds and #payload > 65536 and #payload or payload
        claim(deadline, id, token, payload, due, attempt, first, holder)
        alone = mark_of(holder) == '!'
      elseif bytes_left <= 0 then
        put_back(now, id, due, attempt, first, token, holder)
      end
    end
  end
  return alone
end

-- Leases what was claimed. The attributes of all are read in one command, unless they are known: as delayq writes them,
-- they are short.
local function lease_all(unack, deliveries, attributes, meta, known)
  if #ids == 0 then return end
  local texts = attributed and not known and redis.call('HMGET', attributes, unpack(ids)) or {}
  for n, text in ipairs(texts) do cells[7 * n] = text end
  redis.call('ZADD', unack, unpack(deadlines))
  redis.call('HSET', deliveries, unpack(records))
  if put_back_count > 0 then redis.call('HINCRBY', meta, 'backoffs', put_back_count) end
end

-- Returns the fields of meta that the claim changes, to be stored with its slot: the last token, and a count.
local function drawn(delivered)
  if #ids == 0 then return end
  return 'token', tokens[#ids], 'delivered', string.format('%.0f', delivered + #ids)
end
