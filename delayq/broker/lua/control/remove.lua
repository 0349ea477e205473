-- Deletes every key of a queue that has no messages, dead or cold ones included, schedules and consumers: its settings,
-- totals, results, history and event log go as well. Nothing is remembered of this call, since that would be a key.
-- KEYS: messages hash, dead_messages hash, schedule_specs hash, beats zset, meta hash, pending zset, ready list, ranked zset,
--   unack zset, retry list, garbage set, retries hash, deliveries hash, headers hash, attributes hash, errors hash,
--   successors hash, gathered hash, limits hash, declared hash, gates zset, throttled zset, running zset, key_lines zset,
--   replies hash, dead zset,
--   dead_ids hash, completed zset, results hash, waited zset, ends stream, events stream, done zset, runs
--   hash, refusals hash, archives hash, notifiers hash, readers hash, staged hash, plans hash, schedules zset,
--   schedule_states hash, schedule_labels zset, workers hash, history hash, moving hash, cold hash, cold_changes hash,
--   wake list
-- ARGV: now (ms or '')
-- Returns: messages, dead messages, schedules, consumers that count, cold messages; only if all are 0 the keys are deleted
-- Re-run: deletes what is there, if it is empty still.
-- Uses: clock, numbers
local messages, dead_messages, schedule_specs, beats, meta = unpack(KEYS, 1, 5)
local now = string.format('%.0f', clock(ARGV[1]) / 1000)
local held = redis.call('HLEN', messages)
local died = redis.call('HLEN', dead_messages)
local declared = redis.call('HLEN', schedule_specs)
local consumers = redis.call('ZCOUNT', beats, now, '+inf')
local cold = whole(redis.call('HGET', meta, 'cold')) or 0
if held + died + declared + consumers + cold == 0 then redis.call('UNLINK', unpack(KEYS)) end
return {held, died, declared, consumers, cold}
