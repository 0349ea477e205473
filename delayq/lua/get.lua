-- Reads all that is known of one message: the living one, or else its last death.
-- KEYS: pending zset, unack zset, retries hash, messages hash, deliveries hash, headers hash, errors hash,
--   dead_messages hash, dead_ids hash
-- ARGV: id
-- Returns: payload, pending score, unack score, retries left, record, headers, error, then entry and message in the
--   dead letter; '' each for what is not there, and nothing at all for an id that is unknown
-- Re-run: reads only.
local pending, unack, retries, messages, deliveries, headers, errors, dead_messages, dead_ids = unpack(KEYS)
local id = ARGV[1]
local payload = redis.call('HGET', messages, id)
local token = string.match(redis.call('HGET', dead_ids, id) or '', '(%d+)$')
if not payload and not token then return {} end
local entry = not payload and id .. ':' .. token or ''
return {
  payload or '',
  redis.call('ZSCORE', pending, id) or '',
  redis.call('ZSCORE', unack, id) or '',
  redis.call('HGET', retries, id) or '',
  redis.call('HGET', deliveries, id) or '',
  redis.call('HGET', headers, id) or '',
  redis.call('HGET', errors, id) or '',
  entry,
  entry ~= '' and redis.call('HGET', dead_messages, entry) or '',
}
