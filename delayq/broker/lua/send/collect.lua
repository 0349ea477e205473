-- Adds entries to groups, each to the message with its id that gathers, or to its successor; see `group`.
-- KEYS: pending zset, retries hash, messages hash, headers hash, attributes hash, successors hash, gathered hash,
--   events stream, done zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), max_length (ids, 0 for none), quiet (ms), at_most (ms after the first entry of a
--   batch, '' for no limit), limit (bytes of a batch), then per entry: id, retries, entry (a comma and JSON, or a
--   netstring), headers, attributes (which say how many entries a batch has)
-- Returns: a list of "status due" with commas between: 1 new, 7 added to what gathers, 6 to the successor; then the due
--   time (ms) of the batch
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, attributed, signal, successor,
--   gathered, log, group, regrouped, done, full
local pending, retries, messages, headers, attributes, successors, gathered, events, done, meta, wake = unpack(KEYS)
local slot, sequence, override, max_length, quiet, at_most, limit = unpack(ARGV, 1, 7)
-- The access rights of consumers do not include this command: who only consumes sends nothing.
redis.call('HEXISTS', messages, ARGV[8])
local past, logged = begun(meta, done, slot, sequence)
if past then return past end
local now, at_once, millis, micros = send_times(override)
local paused, found = string.format('%.0f', now + quiet), {}
at_once = string.format('%.0f', at_once)
for i = 8, #ARGV, 5 do
  local id, retry_count, entry, header_text, text = unpack(ARGV, i, i + 4)
  local one = group_for(messages, attributes, successors, id, retry_count, header_text, text, micros, limit)
  found[#found + 1] = gather(one, entry, at_once, paused, at_most)
end
local refused = full(messages, max_length, new_groups)
if refused then return refused end
look_at_groups(retries, headers, successors, gathered)
store_groups(pending, retries, messages, headers, attributes, successors, gathered, meta, wake)
local reply = remember(meta, slot, sequence, millis, table.concat(found, ','))
log_groups(events, meta, logged, at_once)
return reply
