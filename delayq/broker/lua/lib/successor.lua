-- Successors: what was sent with replace "after" while its id was leased waits beside that message, and takes its place
-- in the script that ends it. A record is a line "due retries headers attributes" (ms; retries; lengths), then headers,
-- attributes and payload, concatenated.
local heirs = {ids = {}, dues = {}, retries = {}, headers = {}, attributes = {}, payloads = {}}

local function successor_record(due, retry_count, header_text, attribute_text, payload)
  return string.format('%.0f %s %d %d\n', due, retry_count, #header_text, #attribute_text)
    .. header_text .. attribute_text .. payload
end

-- Returns the hash of successors if any waits, which is never while the schema is odd. Then looks at the types of what
-- they enter and the script has not looked at, since nothing may be written before.
local function waiting_in(successors, schema, pending, wake)
  if not has_attributes(schema) or redis.call('HLEN', successors) == 0 then return false end
  redis.call('ZCARD', pending)
  redis.call('LLEN', wake)
  return successors
end

-- Notes the successor of a message that is about to end; false for none.
local function inherit(id, record)
  local due, left, header_size, attribute_size, at = string.match(record or '', '^(%d+) (%d+) (%d+) (%d+)\n()')
  if not (whole(due) and whole(left)) then return end
  local n, attributes_at = #heirs.ids + 1, at + header_size
  local payload_at = attributes_at + attribute_size
  heirs.ids[n], heirs.dues[n], heirs.retries[n] = id, due, left
  heirs.headers[n] = string.sub(record, at, attributes_at - 1)
  heirs.attributes[n] = string.sub(record, attributes_at, payload_at - 1)
  heirs.payloads[n] = string.sub(record, payload_at)
end

-- Stores the successors as messages, once those before them are deleted, all but their entries in pending. Returns
-- these, and the first due time.
local function succeed(retries, messages, headers, attributes, successors, meta)
  local dues, first_due = {}, math.huge
  for n, id in ipairs(heirs.ids) do
    dues[2 * n - 1], dues[2 * n] = heirs.dues[n], id
    first_due = math.min(first_due, heirs.dues[n])
    redis.call('HSET', messages, id, heirs.payloads[n])
    redis.call('HSET', retries, id, heirs.retries[n])
    if heirs.headers[n] ~= '' then redis.call('HSET', headers, id, heirs.headers[n]) end
    if heirs.attributes[n] ~= '' then redis.call('HSET', attributes, id, heirs.attributes[n]) end
  end
  redis.call('HDEL', successors, unpack(heirs.ids))
  increase(meta, 'sent', #heirs.ids)
  return dues, first_due
end
