-- Returns the reply of a turn whose reply was lost: the statuses it has given, and what is still leased under the tokens
-- that it has given out, with the leases renewed.
local function turned_before(past, retries, unack, messages, deliveries, headers, attributes, meta, replies, now, lease)
  local statuses, claimed = string.match(past, '^([01?]*);(.*)$')
  look_at_extras(headers, attributes)
  local alone = claim_again(claimed or '', messages, deliveries, now, string.format('%.0f', now + lease))
  redis.call('HDEL', replies, '') -- changes nothing: a full Redis refuses a script whose first write adds data
  lease_all(unack, deliveries, attributes, meta, false)
  local reply = {statuses or '', string.format('%.0f', now) .. '000', '-1', '-1', '-1', 0, alone and 1 or false}
  for n, id in ipairs(ids) do
    for cell = 1, 7 do reply[8 * n - 1 + cell] = cells[7 * n - 7 + cell] end
    reply[8 * n + 7] = redis.call('HGET', retries, id)
  end
  return reply
end
