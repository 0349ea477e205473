-- What a message keeps that is replaced, or that another one is to follow: all that the send has not given. Then the
-- attributes of the send end in `keep=retries,headers,name` and so on, which is not stored. Else nothing is kept.

-- Returns how often a message was to be retried, its headers and its attributes; of a leased one those of the successor
-- that waits for it, if there is one.
local function sent_before(retries, headers, attributes, successors, id, state, attempts)
  local record = state == 'leased' and read_payload(successors, id) or ''
  local left, header_size, attribute_size, at = string.match(record, '^%d+ (%d+) (%d+) (%d+)\n()')
  if left then
    local middle = at + header_size
    return left, string.sub(record, at, middle - 1), string.sub(record, middle, middle + attribute_size - 1)
  end
  local charged = state == 'leased' and attempts - 1 or attempts
  left = string.format('%d', (whole(retries_of(retries, {id})[1]) or 0) + charged)
  return left, read_payload(headers, id) or '', read_payload(attributes, id) or ''
end

-- Returns what is to be stored of a send as retries, headers and attributes, and the attributes that it has given itself.
-- `before` is the message before with its id, state and attempts; false for none.
local function with_kept(retry_count, header_text, text, before, retries, headers, attributes, successors)
  local given, names = string.match(text, '^(.-) ?keep=([%l_,]+)$')
  if not names then return retry_count, header_text, text, text end
  if not before then return retry_count, header_text, given, given end
  local id, state, attempts = unpack(before)
  local left, old_headers, old = sent_before(retries, headers, attributes, successors, id, state, attempts)
  local function keeps(name) return string.find(',' .. names .. ',', ',' .. name .. ',', 1, true) end
  text = given
  for name, value in string.gmatch(old, '([%l_]+)=(%S+)') do
    if keeps(name) then
      text = string.gsub(' ' .. text, ' ' .. name .. '=%S*', '') .. ' ' .. name .. '=' .. value
      text = string.gsub(text, '^ +', '')
    end
  end
  return keeps('retries') and left or retry_count, keeps('headers') and old_headers or header_text, text, given
end
