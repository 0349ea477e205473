-- Claims ids from ready, ranked and retry under a lease, within the byte budget; each gets a token higher than any before.
-- In a pause it claims none, and reports that none are left. What a limit holds back is throttled, and comes first later.
-- KEYS: ready list, ranked zset, retry list, unack zset, retries hash, messages hash, deliveries hash, headers hash,
--   attributes hash, limits hash, gates zset, throttled zset, running zset, key_lines zset, events stream, meta hash,
--   wake list
-- ARGV: slot, sequence, now (ms or ''), wanted (ids, 0 to pass on a wake-up), lease (ms), consumer (or marked)
-- Returns: now, deadline (ms), entries left in these three, 1 for a message that must run alone, else nil, when
--   something throttled may start (ms or -1) and, in the same text, " ;id scope" for each trial of a breaker, an
--   array of retries left, then per message: id, token, payload, due (ms), attempt, headers, attributes (nil for none)
-- Re-run: returns what is still leased under the remembered tokens, with its lease renewed.
-- Uses: bytes, clock, numbers, once, schema, record, stale, started, lease, sources, limit, key, limited,
--   known_limits, throttle, keys, line_sources, lines, pause, log
local ready, ranked, retry, unack, retries, messages, deliveries, headers, attributes, limits, gates,
  throttled, running, key_lines, events, meta, wake = unpack(KEYS)
local slot, sequence, override, wanted, lease, consumer = unpack(ARGV, 1, 6)
local past = answered(meta, slot, sequence)
local time, wanted = clock(override), tonumber(wanted)
local now, alone, without_payload, claimed_pairs = math.floor(time / 1000), false, {}, {}
local deadline = string.format('%.0f', now + lease)
local in_ready = source_of(ready, 'ready', redis.call('LLEN', ready))
local in_retry = source_of(retry, 'retry', redis.call('LLEN', retry))
look_at_extras(headers, attributes)
local counters = redis.call('HMGET', meta, 'token', 'delivered', 'events', 'paused', 'priority_step', 'limited')
local in_ranked = source_of(ranked, 'ranked', counters[5] and redis.call('ZCARD', ranked) or 0)
local token, delivered, reports = math.max((whole(counters[1]) or 0) + 1, time), whole(counters[2]) or 0, mark_of(consumer)
local paused = pause_end(counters[4], now)
local limited = not paused and look_at_limits(limits, gates, throttled, running, key_lines, counters[6], time, token)
wanted = paused and 0 or limited and not past and room(limits, running, unack, meta, math.min(wanted, 250)) or wanted
scan_limit = wanted + (limited and 500 or 1000)

-- Claims up to `count` entries of a source, or of two by rank. Skips stale ones, whose ids have moved elsewhere since.
local function take(source, other, count)
  while count > 0 do
    local from, at, last = first_run(source, other, deliveries, attributes, count)
    if not from then return end
    local found, records, is, due, attempt, first, last_token, holder, mark, next_attempt = from.found, from.records
    local payload_of = payloads_of(messages, found, last, payloads_at_once(from))
    for n = at, last do
      local id = found[n]
      if n == at or records[n] ~= records[n - 1] then -- many are the same
        is, due, attempt, first, last_token, holder = read_in(from.state, records[n], now)
        mark, next_attempt = reports and holder and mark_of(holder), string.format('%d', (attempt or 0) + 1)
      end
      if is ~= from.state or seen[id] then
        from.stale = from.stale + 1
      else
        local new_token, suspect = string.format('%.0f', token), mark and (mark == '!' or from == in_retry)
        if bytes_left <= 0 or limits_left <= 0 or alone or suspect and #ids > 0 then return end
        local waits = limited and judge(limits, gates, running, from, n, id)
        local payload = not waits and payload_of(n)
        if waits then
          throttle(waits, id, rank_at(from, n) or tonumber(due), due, attempt, first, last_token, suspect and marked(holder, '!') or holder)
        elseif payload then
          if limited then start(id) end
          claim(deadline, id, new_token, payload, due, next_attempt, first == '0' and new_token or first,
            suspect and marked(consumer, '!') or consumer, limited and from.texts[n])
          token, count, claimed_pairs[#ids], alone = token + 1, count - 1, id .. ' ' .. new_token, suspect or false
        else
          without_payload[#without_payload + 1] = id
        end
        seen[id] = true
      end
      from.scanned = from.scanned + 1
    end
  end
end

if past then
  alone = claim_again(past, messages, deliveries, now, deadline)
else
  if limited then take_lines(limits, gates, throttled, running, key_lines, deliveries, attributes, wanted, take) end
  -- Retries do not starve: one of every four deliveries may come from retry first. Nor does ready, beside large ones.
  take(in_retry, nil, math.min(math.floor((delivered + wanted) / 4) - math.floor(delivered / 4), wanted - #ids))
  bytes_left = math.max(bytes_left, 1)
  take(in_ready, in_ranked, wanted - #ids)
  take(in_retry, nil, wanted - #ids)
end
local retry_counts = #ids > 0 and retries_of(retries, ids) or {}
redis.call('ZCARD', unack)
local closed, more = count_starts(limits, gates, running, past)
local left = (paused or closed) and 0 or left_in(in_ready) + left_in(in_retry) + left_in(in_ranked)
-- A consumer that leaves work behind wakes the next one, so that a burst wakes as many as it needs.
local wakes = (left > 0 or more) and redis.call('LLEN', wake) == 0
-- The first write needs no memory, even if it changes nothing: a full Redis refuses a script whose first write may.
redis.call('LTRIM', ready, 0, -1)
remove_read(meta, in_ready, in_retry, in_ranked)
lease_all(unack, deliveries, attributes, meta, limited and not past)
if limited and not past then settle_limits(limits, gates, throttled, running, key_lines, deliveries, meta) end
local trials = trials_of(past)
local reply = {now, now + lease, left, alone, next_gate(gates) .. trials, retry_counts, unpack(cells, 1, 7 * #ids)}
if past then return reply end
if #without_payload > 0 then redis.call('HDEL', deliveries, unpack(without_payload)) end
if wakes then redis.call('RPUSH', wake, '1') end
remember(meta, slot, sequence, now, table.concat(claimed_pairs, ' ') .. trials, drawn(delivered))
log(events, meta, counters[3], 'delivered', now, 'holder', unmarked(consumer), 'ids', ids, 'tokens', tokens,
  'dues', dues, 'attempts', attempts, 'retries', retry_counts)
return reply
