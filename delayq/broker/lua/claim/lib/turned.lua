-- Returns the reply of a turn whose reply was lost: the statuses it has given, and what is still leased under the tokens
-- that it has given out, with the leases renewed. What else there is to tell is in `reply`, if messages were wanted. A turn
-- that a later call has overtaken gets '', as one whose number of receipts is not that of the remembered statuses.
local function turned_before(past, receipts, reply, retries, unack, messages, deliveries, attributes, meta, now, deadline)
  local statuses, claimed = string.match(past, '^([01?]*);(.*)$')
  if not statuses or #statuses ~= receipts then return '' end
  redis.call('HDEL', meta, '') -- changes nothing: a full Redis refuses a script whose first write adds data
  local alone = claim_again(claimed, messages, deliveries, now, deadline)
  lease_all(unack, deliveries, attributes, meta, false)
  if not reply[2] then return statuses end
  reply[1], reply[7] = statuses, alone and 1 or false
  reply[4] = redis.call('ZRANGE', unack, '0', '0', 'WITHSCORES')[2] or '-1'
  for n, id in ipairs(ids) do
    for cell = 1, 7 do reply[8 * n - 1 + cell] = cells[7 * n - 7 + cell] end
    reply[8 * n + 7] = redis.call('HGET', retries, id) or DEFAULT_RETRIES
  end
  return reply
end
