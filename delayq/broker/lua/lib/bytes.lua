-- Payloads are read within a budget of bytes, so that no call keeps the server busy for long: a script stops after the
-- payload with which it has read a mebibyte, and its reply tells the caller to go on with another call.
local bytes_left = 1048576

-- Returns a payload, or another text of any length, and counts its bytes; false if there is none.
local function read_payload(hash, field)
  local payload = redis.call('HGET', hash, field)
  bytes_left = bytes_left - (payload and #payload or 0)
  return payload
end

-- Returns a function that reads the payloads of ids in their order, `most` in a command or, if they are large, fewer.
local function payloads_of(hash, ids, last, most)
  local slice, before, number = {}, 0, math.min(2, most)
  return function(n)
    if n > before + #slice then
      local size = 0
      slice, before = redis.call('HMGET', hash, unpack(ids, n, math.min(n + number - 1, last))), n - 1
      for _, payload in ipairs(slice) do size = size + #(payload or '') end
      number = size > 65536 and 1 or math.min(2 * number, most)
    end
    local payload = slice[n - before]
    bytes_left = bytes_left - (payload and #payload or 0)
    return payload
  end
end

-- Scans like HSCAN, which reads the values as well: a few at a time, since their sizes are not known before.
local function scan_payloads(hash, cursor, limit)
  local found, count, done = {}, 1, false
  while not done do
    local page = redis.call('HSCAN', hash, cursor, 'COUNT', count)
    for _, cell in ipairs(page[2]) do
      found[#found + 1], bytes_left = cell, bytes_left - #cell
    end
    cursor, count = page[1], math.min(2 * count, 16)
    done = cursor == '0' or #found >= 2 * limit or bytes_left <= 0
  end
  return {cursor, found}
end
