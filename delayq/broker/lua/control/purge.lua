-- Deletes every message of the queue, including running ones and what is known of cold ones; keeps the dead letter,
-- results, limits, the token and the totals.
-- KEYS: pending zset, ready list, unack zset, retry list, garbage set, retries hash, messages hash, deliveries hash,
--   headers hash, attributes hash, errors hash, successors hash, ranked zset, throttled zset, running zset, gates zset,
--   key_lines zset, gathered hash, cold hash, cold_changes hash, wake list, waited zset, ends stream, events stream, meta hash
-- ARGV: slot, sequence, now (ms or '')
-- Returns: "purged": how many messages, the cold ones included
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, schema, ends, log
local waited, ends, events, meta = unpack(KEYS, 22, 25)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local purged = redis.call('HLEN', KEYS[7]) + (whole(redis.call('HGET', meta, 'cold')) or 0)
local logged, now = logging(meta), math.floor(clock(override) / 1000)
local tells = is_waited_for(waited, ends, redis.call('HGET', meta, 'schema'))
redis.call('UNLINK', unpack(KEYS, 1, 21)) -- first, because access rights may refuse it
begin(meta, slot)
redis.call('HDEL', meta, 'stale_ready', 'stale_retry', 'backoffs', 'cold')
increase(meta, 'purged', purged)
if tells then
  redis.call('UNLINK', waited)
  append(ends, '') -- whoever waits looks again
end
local reply = remember(meta, slot, sequence, now, string.format('%d', purged))
if purged > 0 then log(events, meta, logged, 'purged', now, 'count', purged) end
return reply
