-- Moves messages without retries to the dead letter, as many as the byte budget allows, and trims it to its limits. Those
-- that were asked to stop are cancelled. A successor that waits takes the place of its message. Deletes unused call
-- slots, also those that a version before keeps in replies, ids older than the dedupe window, results whose time is
-- over, entries of no group, and of the event log what is more than its bytes.
-- KEYS: pending zset, garbage set, retries hash, messages hash, deliveries hash, headers hash, attributes hash,
--   errors hash, successors hash, dead zset, dead_messages hash, dead_ids hash, completed zset, results hash,
--   waited zset, ends stream, events stream, done zset, replies hash, gathered hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), limit (ids), dead_max (entries), dead_ttl (ms; both only if the queue has
--   none of its own), slot_ttl (ms), max_log (bytes of the event log), then ids (to collect; none for any)
-- Returns: "collected trimmed left": ids; entries; ids still in garbage, and results whose time is over
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, lasting, record, started, erase, dead, signal, successor, ends, expired,
--   follower, gathered, stray, log, log_bound, done
local pending, garbage, retries, messages, deliveries, headers, attributes, errors, successors, dead, dead_messages,
  dead_ids, completed, results, waited, ends, events, done, replies, gathered, meta, wake = unpack(KEYS)
local slot, sequence, override, limit, dead_max, dead_ttl, slot_ttl, max_log = unpack(ARGV, 1, 8)
local past, logged, schema = begun(meta, done, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
for _, hash in ipairs({retries, messages, deliveries, headers, attributes, errors, dead_messages, dead_ids}) do
  redis.call('HLEN', hash)
end
redis.call('ZCARD', dead)
local waiting = waiting_in(successors, schema, pending, wake)
local tells = is_waited_for(waited, ends, schema)
look_at_results(completed, results, ends, schema)
local leftover = stores_default(schema) and redis.call('HLEN', replies) > 0
local gathers = look_at_gathered(gathered, schema)
local kept = redis.call('HMGET', meta, 'slot_cursor', 'dead_max', 'dead_ttl')
dead_max, dead_ttl = whole(kept[2]) or dead_max, whole(kept[3]) or dead_ttl
local spent, gone, found, buried, ended, stopped, texts, ids, tokens = {}, {}, {}, {}, {}, {}, {}, {}, {}
local candidates = #ARGV > 8 and {} or redis.call('SRANDMEMBER', garbage, limit)
for i = 9, #ARGV do candidates[#candidates + 1] = ARGV[i] end
for _, id in ipairs(candidates) do
  if bytes_left <= 0 then break end
  if redis.call('SISMEMBER', garbage, id) == 1 and not found[id] then
    local record = redis.call('HGET', deliveries, id) or ''
    local state, due, attempts, _, token, consumer = read_in('garbage', record, now)
    local unread, payload = token == '0', read_payload(messages, id)
    spent[#spent + 1], found[id] = id, true
    -- What another program has put here, and what is elsewhere by its record or in pending, stays there.
    if state == 'garbage' and not (unread and redis.call('ZSCORE', pending, id)) then
      gone[#gone + 1] = id
      if waiting then inherit(id, read_payload(successors, id)) end
      if payload then
        found[id] = {token = unread and string.format('%.0f', time) or token, attempts = attempts, due = due,
          left = 0, payload = payload, reason = 'retries spent', error = read_payload(errors, id) or '',
          headers = read_payload(headers, id) or '', attributes = read_payload(attributes, id) or ''}
        ended[#ended + 1], texts[id] = id, found[id].attributes
        table.insert(mark_of(consumer) == '*' and stopped or buried, id)
      end
    end
  end
end
begin(meta, slot)
if #spent > 0 then redis.call('SREM', garbage, unpack(spent)) end
if #gone > 0 then erase(messages, retries, deliveries, headers, attributes, errors, gone) end
if #ended > 0 then
  add_dead_entries(dead, dead_messages, dead_ids, now, buried, found)
  if #buried > 0 then increase(meta, 'dead', #buried) end
  if #stopped > 0 then increase(meta, 'cancelled', #stopped) end
  settle(done, now, ended, texts)
  if tells then announce(waited, ends, ended) end
end
if #heirs.ids > 0 then enter(pending, wake, succeed(retries, messages, headers, attributes, successors, meta)) end

-- Old entries and excess entries are both removed from the oldest end, so the longer list covers both.
local trimmed = redis.call('ZRANGEBYSCORE', dead, '-inf', now - dead_ttl, 'LIMIT', 0, limit)
local excess = math.min(redis.call('ZCARD', dead) - dead_max, tonumber(limit))
if excess > #trimmed then trimmed = redis.call('ZRANGE', dead, 0, excess - 1) end
if #trimmed > 0 then
  remove_dead_entries(dead, dead_messages, dead_ids, trimmed)
  increase(meta, 'trimmed', #trimmed)
  for _, entry in ipairs(trimmed) do
    -- What another program has added without a token has no event.
    ids[#ids + 1], tokens[#ids + 1] = string.match(entry, '^(.*):(%d+)$')
  end
end

tidy(done, now, tonumber(limit))
if gathers then delete_stray(gathered, attributes, successors) end
if leftover then forget_slots(replies, '0', now, slot_ttl) end
local cursor = forget_slots(meta, whole(kept[1]) and kept[1] or '0', now, slot_ttl)
if cursor == '0' then redis.call('HDEL', meta, 'slot_cursor') else redis.call('HSET', meta, 'slot_cursor', cursor) end
local left = forget_results(completed, results, waited, ends, schema, now, 10 * limit)
local reply = remember(meta, slot, sequence, now,
  string.format('%d %d %d', #buried, #trimmed, redis.call('SCARD', garbage) + left))
log_deaths(events, meta, logged, now, buried, found)
log(events, meta, logged, 'cancelled', now, 'ids', stopped)
log(events, meta, logged, 'sent', now, 'ids', heirs.ids, 'dues', heirs.dues, 'retries', heirs.retries)
log(events, meta, logged, 'dead_trimmed', now, 'ids', ids, 'tokens', tokens)
if logged then bound_log(events, max_log) end
return reply
