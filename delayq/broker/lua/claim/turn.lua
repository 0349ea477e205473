-- One turn of a consumer of a plain queue: settles messages as done, and claims what is due, or will be within `ahead`.
-- It does what `ack` and `pending_to_unack` do, at once, while the queue has no event log, dedupe window, reserved ids,
-- limits, priorities and successors: else it does nothing, and these two answer.
-- KEYS: pending zset, ready list, retry list, unack zset, retries hash, messages hash, deliveries hash,
--   headers hash, attributes hash, errors hash, successors hash, schedules zset, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), wanted (ids), ahead (ms), lease (ms), consumer (or marked), then per receipt of
--   a message that is done: id, token
-- Returns: 0 if the queue needs the other two; else a text with a status per receipt: 1 settled by it, 0 settled before,
--   dead, or from an earlier life, ? for `ack` to settle. If ids are wanted, also the time (microseconds since 1970, a
--   text), the first due time left in pending, the first deadline, the next schedule (ms or -1), entries left in ready
--   and retry, 1 for a message that must run alone, else nil; then per message: id, token, payload, due (ms),
--   attempt, headers, attributes (nil for none), retries left
-- Re-run: returns the same statuses, and what is still leased under the remembered tokens, with its lease renewed; a call
--   that has settled and claimed nothing runs again.
-- Uses: bytes, clock, numbers, once, schema, record, receipt, started, lease, plain, turned, pause
local pending, ready, retry, unack, retries, messages, deliveries, headers, attributes, errors, successors,
  schedules, meta, wake = unpack(KEYS)
local slot, sequence, override, wanted, ahead, lease, consumer = unpack(ARGV, 1, 7)
local time, time_text = clock_and_text(override)
local now, alone = math.floor(time / 1000), false
local deadline = string.format('%.0f', now + lease)
local kept = redis.call('HMGET', meta, slot, 'token', 'delivered', 'acked', 'paused', 'schema', unpack(SPECIAL))
local past = past_of(kept[1], sequence)
local others, failed, counted =
  look_at_rest(kept[6], retries, headers, attributes, errors, ready, retry, schedules, successors)
if not past and (is_special(kept, 6) or others and redis.call('HLEN', successors) > 0) then return 0 end
local due, count, paused, left, next_schedule, reply = {}, 0, pause_end(kept[5], now), 0, '-1', {}
if wanted ~= '0' then
  if others then
    left = redis.call('LLEN', ready) + redis.call('LLEN', retry)
    next_schedule = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2] or '-1'
  end
  due = redis.call('ZRANGE', pending, '0', '3', 'WITHSCORES')
  reply = {'', time_text, not paused and due[2] or '-1', '-1', next_schedule, left, false}
  local most = (past or left > 0 or paused) and 0 or tonumber(wanted)
  while count < most and due[2 * count + 2] and tonumber(due[2 * count + 2]) <= now + ahead do count = count + 1 end
  if count == 4 and most > 4 then
    due = redis.call('ZRANGEBYSCORE', pending, '-inf', now + ahead, 'WITHSCORES', 'LIMIT', '0', wanted)
    count = #due / 2
  end
end
local asked, tokens_told = {}, {}
for i = 8, #ARGV, 2 do asked[#asked + 1], tokens_told[#tokens_told + 1] = ARGV[i], ARGV[i + 1] end
local receipts = #asked
if past then return turned_before(past, receipts, reply, retries, unack, messages, deliveries, attributes, meta, now, deadline) end
for n = 1, count do asked[receipts + n] = due[2 * n - 1] end
local stored = #asked > 0 and redis.call('HMGET', deliveries, unpack(asked)) or {}
local statuses, done, ended = settled_by(tokens_told, asked, stored)
local token, last_token, taken, pairs_taken, without = math.max((whole(kept[2]) or 0) + 1, time), kept[2] or '0', 0, {}, {}
local payload_of = payloads_of(messages, asked, receipts + count, 16)
for n = 1, count do
  local id, record, attempt, first, holder, suspect, _ = asked[receipts + n], stored[receipts + n], '1', '0', nil, false, nil
  if record then
    _, _, attempt, first, _, holder = read(record)
    attempt, suspect = string.format('%d', (attempt or 0) + 1), mark_of(consumer) and holder and mark_of(holder) == '!'
  end
  if n > 1 and bytes_left <= 0 or suspect and (n > 1 or tonumber(due[2 * n]) > now) or alone then break end
  local payload = payload_of(receipts + n)
  if payload and not ended[id] then
    local k, i, j, at = #ids + 1, 2 * #ids + 1, 8 * #ids + 8, time_of(due[2 * n])
    local new_token = token == time and time_text or string.format('%.0f', token)
    ids[k], records[i], records[i + 1] = id, id, write('leased', at, attempt, (first or '0') == '0' and new_token or first,
      new_token, suspect and marked(consumer, '!') or consumer)
    deadlines[i], deadlines[i + 1], pairs_taken[k] = deadline, id, id .. ' ' .. new_token
    reply[j], reply[j + 1], reply[j + 2], reply[j + 3], reply[j + 4] = id, new_token, payload, at, attempt
    reply[j + 5], reply[j + 6], reply[j + 7] = headed and read_payload(headers, id), false, DEFAULT_RETRIES
    token, last_token, alone, reply[7] = token + 1, new_token, suspect, suspect and 1 or false
  end
  without[#without + 1], taken = not payload and id or nil, n
end
local next_due = due[2 * taken + 2] or count > 3 and redis.call('ZRANGE', pending, taken, taken, 'WITHSCORES')[2]
reply[1], reply[3] = statuses, taken > 0 and (next_due or '-1') or reply[3]
local wakes = taken > 0 and next_due and tonumber(next_due) <= now + ahead and redis.call('LLEN', wake) == 0
if #ids > 0 then
  for n, left_over in ipairs(counted and retries_of(retries, ids) or {}) do reply[8 * n + 7] = left_over end
  for n, text in ipairs(attributed and redis.call('HMGET', attributes, unpack(ids)) or {}) do reply[8 * n + 6] = text end
end
if #done > 0 then -- the types of what is written next were looked at; see `ack` for messages and retries
  redis.call('ZREM', unack, unpack(done))
  redis.call('HDEL', messages, unpack(done))
  if counted then redis.call('HDEL', retries, unpack(done)) end
  if headed then redis.call('HDEL', headers, unpack(done)) end
  if attributed then redis.call('HDEL', attributes, unpack(done)) end
  if failed then redis.call('HDEL', errors, unpack(done)) end
  redis.call('HDEL', deliveries, unpack(done))
end
local first_deadline = wanted ~= '0' and redis.call('ZRANGE', unack, '0', '0', 'WITHSCORES')[2]
reply[4] = first_deadline and tonumber(first_deadline) < now + lease and first_deadline or #ids > 0 and deadline or first_deadline or '-1'
if taken > 0 then redis.call('ZREMRANGEBYRANK', pending, '0', taken - 1) end
if #without > 0 then redis.call('HDEL', deliveries, unpack(without)) end
if wakes then redis.call('RPUSH', wake, '1') end
lease_all(unack, deliveries, attributes, meta, true)
if #ids + #done > 0 then
  remember(meta, slot, sequence, now, statuses .. ';' .. table.concat(pairs_taken, ' '),
    'token', last_token, 'delivered', sum(kept[3], #ids), 'acked', sum(kept[4], #done))
elseif taken > 0 then
  remember(meta, slot, sequence, now, statuses .. ';')
end
return wanted ~= '0' and reply or statuses
