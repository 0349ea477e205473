-- Reads everything stored about one id: the message, its last entry in the dead letter, and its result.
-- KEYS: pending zset, unack zset, retries hash, messages hash, deliveries hash, headers hash,
--   attributes hash, errors hash, dead_messages hash, dead_ids hash, completed zset, results hash,
--   gathered hash
-- ARGV: now (ms or ''), id
-- Returns: payload, pending score, unack score, retries left, record, headers, attributes, error, last entry in the
--   dead letter, the dead message if there is no other, and for one that is not alive the time until which its result is
--   kept (ms) and its record; '' for each missing part, then now (ms); an empty reply for an unknown id
-- Re-run: reads only.
-- Uses: bytes, clock, schema, gathered
local pending, unack, retries, messages, deliveries, headers, attributes, errors, dead_messages, dead_ids, completed,
  results, gathered = unpack(KEYS)
local override, id = unpack(ARGV)
local payload = read_whole(messages, attributes, gathered, id)
local token = string.match(redis.call('HGET', dead_ids, id) or '', '%d+$', -20) -- no token is longer
local record = not payload and read_payload(results, id)
if not payload and not token and not record then return {} end
local entry = token and id .. ':' .. token or ''
return {
  payload or '',
  redis.call('ZSCORE', pending, id) or '',
  redis.call('ZSCORE', unack, id) or '',
  payload and retries_of(retries, {id})[1] or '',
  redis.call('HGET', deliveries, id) or '',
  read_payload(headers, id) or '',
  read_payload(attributes, id) or '',
  read_payload(errors, id) or '',
  entry,
  not payload and token and read_payload(dead_messages, entry) or '',
  record and redis.call('ZSCORE', completed, id) or '',
  record or '',
  math.floor(clock(override) / 1000),
}
