-- Changes a message that waits where it is, if its attributes, and its attempts, payload and headers if they are given, are
-- still those that the caller has read. Where its place depends on what changes, it is ranked anew by its due time.
-- KEYS: ranked zset, throttled zset, messages hash, deliveries hash, headers hash, attributes hash, dead_ids hash,
--   events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), id, parts (p with a payload, h with headers, c to compare what was read),
--   reranks (0, 1 if a limit holds it back, 2 if it is due), text_before (its attributes), text (the new ones), payload,
--   header_text, attempts_before, payload_before, headers_before
-- Returns: 1 edited, 2 running, 3 dead, 4 changed since it was read, 0 gone
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, schema, attributed, record, started, rank, signal, log
local ranked, throttled, messages, deliveries, headers, attributes, dead_ids, events, meta, wake = unpack(KEYS)
local slot, sequence, override, id, parts, reranks, text_before, text, payload, header_text, attempts_before,
  payload_before, headers_before = unpack(ARGV, 1, 13)
-- The access rights of producers and consumers do not include this command: only an admin edits.
redis.call('HVALS', meta)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local logged, step = unpack(redis.call('HMGET', meta, 'events', 'priority_step'))
local status = redis.call('HEXISTS', dead_ids, id) == 1 and '3' or '0'
local state, due, attempts, first, token, consumer
if redis.call('HEXISTS', messages, id) == 1 then
  state, due, attempts, first, token, consumer = read_in('pending', redis.call('HGET', deliveries, id) or '', 0)
  local same = (read_payload(attributes, id) or '') == text_before
  if string.find(parts, 'c') then
    same = same and attempts == attempts_before and (read_payload(headers, id) or '') == headers_before
      and read_payload(messages, id) == payload_before
  end
  status = state == 'leased' and '2' or state == 'garbage' and '3' or same and '1' or '4'
end
if status ~= '1' then
  begin(meta, slot)
  return remember(meta, slot, sequence, now, status)
end

local moves = reranks ~= '0' and state == 'throttled'
  or reranks == '2' and (state == 'ready' or state == 'retry' or state == 'ranked')
redis.call('HLEN', headers)
redis.call('ZCARD', ranked)
redis.call('ZCARD', throttled)
redis.call('LLEN', wake)
-- Adds before it removes: a full Redis must refuse its first write, unless it only removes.
if string.find(parts, 'p') then redis.call('HSET', messages, id, payload) end
if text ~= '' and text ~= text_before then
  redis.call('HSET', attributes, id, text)
  note_kinds(text)
  note_attributes(meta)
end
if header_text ~= '' then redis.call('HSET', headers, id, header_text) end
if text == '' then redis.call('HDEL', attributes, id) end
if header_text == '' and string.find(parts, 'h') then redis.call('HDEL', headers, id) end
if moves then
  if state == 'throttled' then
    redis.call('ZREM', throttled, id)
  elseif state == 'retry' then
    if mark_of(consumer) then consumer = marked(consumer, '!') end -- it is claimed alone
    increase(meta, 'stale_retry', 1)
  elseif state == 'ready' then
    increase(meta, 'stale_ready', 1)
  end
  redis.call('HSETNX', meta, 'priority_step', '60000')
  redis.call('ZADD', ranked, rank_text(text, due, step) or due, id)
  redis.call('HSET', deliveries, id, write('ranked', due, attempts, first, token, consumer))
  signal(wake)
end
local reply = remember(meta, slot, sequence, now, status)
log(events, meta, logged, 'edited', now, 'ids', {id})
return reply
