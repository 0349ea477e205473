-- One turn of a consumer of a plain queue: settles messages as done, and claims what is due, or will be within `ahead`.
-- It does what `ack` and `pending_to_unack` do, at once, while the queue has no event log, dedupe window, reserved ids,
-- limits, priorities and successors: else it does nothing, and these two answer.
-- KEYS: pending zset, ready list, ranked zset, retry list, unack zset, retries hash, messages hash, deliveries hash,
--   headers hash, attributes hash, errors hash, successors hash, schedules zset, meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), wanted (ids), ahead (ms), lease (ms), consumer (or marked), then per receipt of
--   a message that is done: id, token
-- Returns: 0 if the queue needs the other two; else a text with a status per receipt: 1 settled by it, 0 settled before,
--   dead, or from an earlier life, ? for `ack` to settle; the time (microseconds since 1970, a text); then as
--   `pending_to_unack` with the first deadline before this call, and nothing but statuses and times if none is wanted
-- Re-run: returns the same statuses, and what is still leased under the remembered tokens, with its lease renewed; a call
--   that has settled and claimed nothing runs again.
-- Uses: bytes, clock, numbers, once, plain, record, receipt, started, lease, pause
local pending, ready, ranked, retry, unack, retries, messages, deliveries, headers, attributes, errors, successors,
  schedules, meta, replies, wake = unpack(KEYS)
local slot, sequence, override, wanted, ahead, lease, consumer = unpack(ARGV, 1, 7)
local past = answered(replies, slot, sequence)
local time = clock(override)
local now, next_due, next_deadline, next_schedule, left, alone, statuses = math.floor(time / 1000), '-1', '-1', '-1', 0,
  false, {}
local deadline = string.format('%.0f', now + lease)
local extras = redis.call('EXISTS', headers, attributes, errors)
if extras > 0 then look_at_extras(headers, attributes) end
local function build_reply(retry_counts)
  return {table.concat(statuses), string.format('%.0f', time), next_due, next_deadline, next_schedule, 0, now, now + lease,
    left, alone, '-1', retry_counts, unpack(cells, 1, 7 * #ids)}
end
local kept = redis.call('HMGET', meta, 'token', 'delivered', 'acked', 'paused', unpack(SPECIAL))
local others = redis.call('EXISTS', ready, ranked, retry, schedules, successors)
if not past and (is_special(kept, 4) or others > 0 and redis.call('HLEN', successors) > 0) then return 0 end
local due, count, receipts, asked, done, seen, paused = {}, 0, 0, {}, {}, {}, pause_end(kept[4], now)
if wanted ~= '0' then
  if others > 0 then
    left = redis.call('LLEN', ready) + redis.call('ZCARD', ranked) + redis.call('LLEN', retry)
    next_schedule = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2] or '-1'
  end
  next_deadline = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')[2] or '-1'
  due = redis.call('ZRANGE', pending, 0, 1, 'WITHSCORES')
  next_due = not paused and due[2] or '-1'
end
if past then
  local settled_then, claimed_then = string.match(past, '^([01?]*);(.*)$')
  if not settled_then or 2 * #settled_then ~= #ARGV - 7 then return '' end
  statuses[1], alone = settled_then, claim_again(claimed_then, messages, deliveries, now, deadline)
  redis.call('HDEL', replies, '') -- changes nothing: a full Redis refuses a script whose first write adds data
  lease_all(unack, deliveries, attributes, meta, false)
  return build_reply(#ids > 0 and redis.call('HMGET', retries, unpack(ids)) or {})
end
for n = 2, left == 0 and not paused and #due or 0, 2 do count = count + (tonumber(due[n]) <= now + ahead and 1 or 0) end
if count > 1 and wanted ~= '1' then
  due = redis.call('ZRANGEBYSCORE', pending, '-inf', now + ahead, 'WITHSCORES', 'LIMIT', 0, wanted)
end
count = count > 1 and wanted ~= '1' and #due / 2 or math.min(count, 1)
for i = 8, #ARGV, 2 do receipts, asked[receipts + 1] = receipts + 1, ARGV[i] end
for n = 1, count do asked[receipts + n] = due[2 * n - 1] end
local stored = #asked > 0 and redis.call('HMGET', deliveries, unpack(asked)) or {}
for n = 1, receipts do
  local id, state, _, _, first, last = asked[n], read(stored[n] or '')
  statuses[n] = not seen[id] and wins(state, first, last, ARGV[7 + 2 * n]) and (state == 'leased' and '1' or '?') or '0'
  if statuses[n] == '1' then seen[id], done[#done + 1] = true, id end
end
local token, reports, taken = math.max((whole(kept[1]) or 0) + 1, time), mark_of(consumer), 0
local claimed_pairs, without, payload_of = {}, {}, count > 0 and payloads_of(messages, asked, receipts + count, 16)
for n = 1, count do
  local id, _, _, attempt, first, _, holder = asked[receipts + n], read(stored[receipts + n] or '')
  local suspect = reports and holder and mark_of(holder) == '!'
  if n > 1 and bytes_left <= 0 or suspect and (n > 1 or tonumber(due[2 * n]) > now) or alone then break end
  local payload, new_token = payload_of(receipts + n), string.format('%.0f', token)
  if payload and not seen[id] then
    claim(deadline, id, new_token, payload, time_of(due[2 * n]), string.format('%d', (attempt or 0) + 1),
      (first or '0') == '0' and new_token or first, suspect and marked(consumer, '!') or consumer)
    token, alone, claimed_pairs[#ids] = token + 1, suspect or false, id .. ' ' .. new_token
  else
    without[#without + 1] = id
  end
  taken = n
end
next_due = taken == 0 and next_due or due[2 * taken + 2]
  or count > 1 and redis.call('ZRANGE', pending, taken, taken, 'WITHSCORES')[2] or '-1'
local retry_counts = #ids > 0 and redis.call('HMGET', retries, unpack(ids)) or {}
local wakes = taken > 0 and next_due ~= '-1' and tonumber(next_due) <= now + ahead and redis.call('LLEN', wake) == 0
local failed = extras > 0 and redis.call('HLEN', errors) > 0
if #done > 0 then -- the types of what is written next were looked at; see `ack` for messages and retries
  redis.call('ZREM', unack, unpack(done))
  redis.call('HDEL', messages, unpack(done))
  redis.call('HDEL', retries, unpack(done))
  if headed then redis.call('HDEL', headers, unpack(done)) end
  if attributed then redis.call('HDEL', attributes, unpack(done)) end
  if failed then redis.call('HDEL', errors, unpack(done)) end
  redis.call('HDEL', deliveries, unpack(done))
end
if taken > 0 then redis.call('ZREMRANGEBYRANK', pending, 0, taken - 1) end
if #without > 0 then redis.call('HDEL', deliveries, unpack(without)) end
if wakes then redis.call('RPUSH', wake, '1') end
lease_all(unack, deliveries, attributes, meta, false)
if #ids + #done > 0 then
  redis.call('HSET', meta, 'token', tokens[#ids] or kept[1] or '0', 'delivered', sum(kept[2], #ids), 'acked', sum(kept[3], #done))
  remember(replies, slot, sequence, now, table.concat(statuses) .. ';' .. table.concat(claimed_pairs, ' '))
end
return build_reply(retry_counts)
