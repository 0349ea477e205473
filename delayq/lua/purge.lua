-- Deletes every message of the queue, running ones included; the dead letter, the token and the totals stay.
-- KEYS: pending zset, ready list, unack zset, retry list, garbage set, retries hash, messages hash, deliveries hash,
--   headers hash, errors hash, wake list, meta hash, replies hash
-- ARGV: slot, sequence, now (ms or '')
-- Returns: "purged": ids
-- Re-run: answers what it answered.
-- Uses: clock, once
local meta, replies = KEYS[12], KEYS[13]
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local purged = redis.call('HLEN', KEYS[7])
redis.call('HLEN', meta)
begin(replies, slot)
redis.call('UNLINK', unpack(KEYS, 1, 11))
redis.call('HDEL', meta, 'stale_ready', 'stale_retry', 'backoffs')
redis.call('HINCRBY', meta, 'purged', purged)
return remember(replies, slot, sequence, math.floor(clock(override) / 1000), string.format('%d', purged))
