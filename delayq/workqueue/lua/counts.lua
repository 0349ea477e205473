-- Counts the ids of both lists at one moment.
-- KEYS: queue list, processing list
-- ARGV: none
-- Returns: {ids in the queue, ids in processing}
-- Re-run: counts again.
return {redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[2])}
