-- Claims due ids straight from pending under a lease, while nothing waits in ready and retry: what a promotion and a
-- claim do in turn, at half the cost. Each id gets a token higher than any before. While the queue is paused it claims
-- none, and reports none as due. Where messages have priorities or limits it claims none: all that is due is promoted first.
-- KEYS: pending zset, ready list, ranked zset, retry list, unack zset, retries hash, messages hash, deliveries hash,
--   headers hash, attributes hash, schedules zset, events stream, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), wanted (ids), lease (ms), consumer (or marked)
-- Returns: the first due time left in pending, the first deadline, the next schedule (ms or -1), 1 if what is due must be
--   promoted first, else 0; then as `ready_to_unack`
-- Re-run: returns what is still leased under the remembered tokens, with its lease renewed; a call that claimed nothing
--   runs again.
-- Uses: bytes, clock, numbers, once, schema, record, started, lease, pause, log
local pending, ready, ranked, retry, unack, retries, messages, deliveries, headers, attributes, schedules, events, meta,
  wake = unpack(KEYS)
local slot, sequence, override, wanted, lease, consumer = unpack(ARGV, 1, 6)
local past = answered(meta, slot, sequence)
local time = clock(override)
local now, left, alone, next_schedule, ranks = math.floor(time / 1000), 0, false, '-1', 0
local deadline = string.format('%.0f', now + lease)
look_at_extras(headers, attributes)
local next_deadline = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or '-1'
local head = redis.call('ZRANGE', pending, 0, 1, 'WITHSCORES')
local next_due = head[2] or '-1'
if redis.call('EXISTS', ready, ranked, retry, schedules) > 0 then
  left = redis.call('LLEN', ready) + redis.call('ZCARD', ranked) + redis.call('LLEN', retry)
  next_schedule = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2] or '-1'
end

local function build_reply(retry_counts)
  return {next_due, next_deadline, next_schedule, ranks, now, now + lease, left, alone, '-1', retry_counts,
    unpack(cells, 1, 7 * #ids)}
end
if past then
  alone = claim_again(past, messages, deliveries, now, deadline)
  redis.call('HDEL', meta, '') -- changes nothing: a full Redis refuses a script whose first write adds data
  lease_all(unack, deliveries, attributes, meta, false)
  next_deadline = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or '-1'
  return build_reply(#ids > 0 and retries_of(retries, ids) or {})
end
if left > 0 or not head[1] or tonumber(head[2]) > now then return build_reply({}) end

local due, found = {head[1], head[2]}, {}
if head[4] and tonumber(head[4]) <= now then
  due = redis.call('ZRANGEBYSCORE', pending, '-inf', now, 'WITHSCORES', 'LIMIT', 0, wanted)
end
for n = 1, #due / 2 do found[n] = due[2 * n - 1] end
local counters = redis.call('HMGET', meta, 'token', 'delivered', 'events', 'paused', 'priority_step', 'limited')
local paused = pause_end(counters[4], now)
if paused or counters[5] or counters[6] then
  next_due, ranks = paused and '-1' or next_due, paused and 0 or 1
  return build_reply({})
end
local token, delivered, reports = math.max((whole(counters[1]) or 0) + 1, time), whole(counters[2]) or 0, mark_of(consumer)
local without_payload, claimed_pairs, payload_of, taken = {}, {}, payloads_of(messages, found, #found, 16)
for n, record in ipairs(redis.call('HMGET', deliveries, unpack(found))) do
  local _, _, attempt, first, _, last_holder = read(record or '')
  local suspect = reports and last_holder and mark_of(last_holder) == '!'
  if n > 1 and (suspect or bytes_left <= 0) or alone then break end
  local id, payload, new_token = found[n], payload_of(n), string.format('%.0f', token)
  if payload then
    claim(deadline, id, new_token, payload, time_of(due[2 * n]), string.format('%d', (attempt or 0) + 1),
      (first or '0') == '0' and new_token or first, suspect and marked(consumer, '!') or consumer)
    token, alone, claimed_pairs[#ids] = token + 1, suspect or false, id .. ' ' .. new_token
  else
    without_payload[#without_payload + 1] = id
  end
  taken = n
end
next_due = due[2 * taken + 2] or head[2 * taken + 2]
  or taken > 1 and redis.call('ZRANGE', pending, taken, taken, 'WITHSCORES')[2] or '-1'
local retry_counts = #ids > 0 and retries_of(retries, ids) or {}
-- A consumer that leaves work behind wakes the next one, so that a burst wakes as many as it needs.
local wakes = next_due ~= '-1' and tonumber(next_due) <= now and redis.call('LLEN', wake) == 0
redis.call('ZREMRANGEBYRANK', pending, 0, taken - 1)
if #without_payload > 0 then redis.call('HDEL', deliveries, unpack(without_payload)) end
if wakes then redis.call('RPUSH', wake, '1') end
lease_all(unack, deliveries, attributes, meta, false)
if #ids > 0 and (next_deadline == '-1' or tonumber(next_deadline) > now + lease) then next_deadline = deadline end
remember(meta, slot, sequence, now, table.concat(claimed_pairs, ' '), drawn(delivered))
local reply = build_reply(retry_counts)
log(events, meta, counters[3], 'promoted', now, 'ids', ids, 'dues', dues)
log(events, meta, counters[3], 'delivered', now, 'holder', unmarked(consumer), 'ids', ids, 'tokens', tokens,
  'dues', dues, 'attempts', attempts, 'retries', retry_counts)
return reply
