-- Claims ids from ready and retry under a lease, within the byte budget; each gets a token higher than any before. While
-- the queue is paused it claims none, and reports that none are left.
-- KEYS: ready list, retry list, unack zset, retries hash, messages hash, deliveries hash, headers hash,
--   attributes hash, events stream, meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), wanted (ids, 0 to pass on a wake-up), lease (ms), consumer (or marked)
-- Returns: now, deadline (ms), entries left in ready and retry, 1 for a message that must run alone, else nil, an array
--   of retries left, then per message: id, token, payload, due (ms), attempt, headers, attributes (nil for none)
-- Re-run: returns what is still leased under the remembered tokens, with its lease renewed.
-- Uses: bytes, clock, once, record, stale, started, lease, pause, log
local ready, retry, unack, retries, messages, deliveries, headers, attributes, events, meta, replies, wake =
  unpack(KEYS)
local slot, sequence, override, wanted, lease, consumer = unpack(ARGV, 1, 6)
local past = answered(replies, slot, sequence)
local time, wanted = clock(override), tonumber(wanted)
local now, alone = math.floor(time / 1000), false
local deadline = string.format('%.0f', now + lease)
local length, scanned = {ready = redis.call('LLEN', ready), retry = redis.call('LLEN', retry)}, {ready = 0, retry = 0}
look_at_extras(headers, attributes)
local counters = redis.call('HMGET', meta, 'token', 'delivered', 'events', 'paused')
local paused = pause_end(counters[4], now)
if paused then wanted = 0 end
local token, delivered, reports = math.max((counters[1] or 0) + 1, time), counters[2] or 0, mark_of(consumer)
local scan_limit, stale, seen, without_payload, claimed_pairs = wanted + 1000, {ready = 0, retry = 0}, {}, {}, {}
-- Claims up to `count` entries of a list. Stale entries, whose ids have moved elsewhere since, are skipped.
local function take(list, state, count)
  while count > 0 and scan_limit > 0 and scanned[state] < length[state] do
    local at = scanned[state]
    local found = redis.call('LRANGE', list, at, at + math.min(count, scan_limit, 100) - 1)
    for i, record in ipairs(redis.call('HMGET', deliveries, unpack(found))) do
      local id = found[i]
      local is, due, attempt, first, _, last_holder = read(record or '')
      if is ~= state or seen[id] then
        stale[state] = stale[state] + 1
      else
        local new_token, mark = string.format('%.0f', token), reports and mark_of(last_holder)
        local suspect = mark and (mark == '!' or state == 'retry')
        if bytes_left <= 0 or alone or suspect and #ids > 0 then return end
        local payload = read_payload(messages, id)
        if payload then
          claim(deadline, id, new_token, payload, due, string.format('%d', attempt + 1),
            first == '0' and new_token or first, suspect and marked(consumer, '!') or consumer)
          token, count, claimed_pairs[#ids] = token + 1, count - 1, id .. ' ' .. new_token
          if suspect then alone, scan_limit = true, 0 end
        else
          without_payload[#without_payload + 1] = id
        end
        seen[id] = true
      end
      scanned[state] = at + i
    end
    scan_limit = scan_limit - #found
  end
end

if past then
  alone = claim_again(past, messages, deliveries, deadline)
else
  -- Retries do not starve: one of every four deliveries may come from retry first. Nor does ready, beside large ones.
  take(retry, 'retry', math.floor((delivered + wanted) / 4) - math.floor(delivered / 4))
  bytes_left = math.max(bytes_left, 1)
  take(ready, 'ready', wanted - #ids)
  take(retry, 'retry', wanted - #ids)
end
local left = paused and 0 or length.ready + length.retry - scanned.ready - scanned.retry
local retry_counts = #ids > 0 and redis.call('HMGET', retries, unpack(ids)) or {}
redis.call('ZCARD', unack)
-- A consumer that leaves work behind wakes the next one, so that a burst wakes as many as it needs.
local wakes = left > 0 and redis.call('LLEN', wake) == 0
-- The first write needs no memory, even if it changes nothing: a full Redis refuses a script whose first write may.
redis.call('LTRIM', ready, scanned.ready, -1)
if scanned.retry > 0 then redis.call('LTRIM', retry, scanned.retry, -1) end
lease_all(unack, deliveries)
local reply = {now, now + lease, left, alone, retry_counts, unpack(cells, 1, 7 * #ids)}
if past then return reply end
for list, count in pairs(stale) do if count > 0 then skipped(meta, 'stale_' .. list, count) end end
if #without_payload > 0 then redis.call('HDEL', deliveries, unpack(without_payload)) end
if wakes then redis.call('RPUSH', wake, '1') end
if #ids > 0 then
  redis.call('HSET', meta, 'token', tokens[#ids], 'delivered', string.format('%.0f', delivered + #ids))
end
remember(replies, slot, sequence, now, table.concat(claimed_pairs, ' '))
log(events, meta, counters[3], 'delivered', now, 'holder', unmarked(consumer), 'ids', ids, 'tokens', tokens,
  'dues', dues, 'attempts', attempts, 'retries', retry_counts)
return reply
