-- Claims ids from ready and retry under a lease, within the byte budget; each gets a token higher than any before.
-- KEYS: ready list, retry list, unack zset, retries hash, messages hash, deliveries hash, headers hash, events stream,
--   meta hash, replies hash, wake list
-- ARGV: slot, sequence, now (ms or ''), wanted (ids, 0 to pass on a wake-up), lease (ms), consumer (or marked)
-- Returns: now, deadline (ms), entries left in ready and retry, then arrays: ids, tokens, payloads, retries left, due
--   (ms), attempts, headers (empty if no message has any), then 1 for a message that must run alone, else 0
-- Re-run: returns what is still leased under the remembered tokens, with its lease renewed.
-- Uses: bytes, clock, once, record, stale, started, signal, log
local ready, retry, unack, retries, messages, deliveries, headers, events, meta, replies, wake = unpack(KEYS)
local slot, sequence, override, wanted, lease, consumer = unpack(ARGV, 1, 6)
local time = clock(override)
local now, wanted = math.floor(time / 1000), tonumber(wanted)
local deadline, reports, alone = now + lease, mark_of(consumer), 0
local ids, tokens, payloads, header_texts, dues, attempts, records, deadlines = {}, {}, {}, {}, {}, {}, {}, {}
local has_headers = redis.call('HLEN', headers) > 0

local function claim(id, token, payload, due, attempt, first, holder, runs_alone)
  local n = #ids + 1
  ids[n], tokens[n], payloads[n], dues[n], attempts[n] = id, token, payload, due, attempt
  records[2 * n - 1], records[2 * n] = id, write('leased', due, attempt, first, token, holder)
  deadlines[2 * n - 1], deadlines[2 * n] = deadline, id
  if runs_alone then alone = 1 end
  if has_headers then header_texts[n] = read_payload(headers, id) end
end
local function build_reply()
  local left, retry_counts = redis.call('LLEN', ready) + redis.call('LLEN', retry), {}
  if #ids > 0 then
    redis.call('ZADD', unack, unpack(deadlines))
    redis.call('HSET', deliveries, unpack(records))
    retry_counts = redis.call('HMGET', retries, unpack(ids))
  end
  return {now, deadline, left, ids, tokens, payloads, retry_counts, dues, attempts, header_texts, alone}
end

local past = answered(replies, slot, sequence)
if past then
  begin(replies, '') -- deletes nothing: a full Redis refuses a script whose first write adds data
  for id, token in string.gmatch(past, '(%S+) (%S+)') do
    local state, due, attempt, first, last, holder = read(redis.call('HGET', deliveries, id) or '')
    local payload = state == 'leased' and last == token and read_payload(messages, id)
    if payload then claim(id, token, payload, due, attempt, first, holder, mark_of(holder) == '!') end
  end
  return build_reply()
end
local counters = redis.call('HMGET', meta, 'token', 'delivered')
redis.call('ZCARD', unack)
for _, hash in ipairs({retries, messages, deliveries}) do redis.call('HLEN', hash) end
for _, list in ipairs({ready, retry, wake}) do redis.call('LLEN', list) end
local logged = logging(meta)
begin(replies, slot)
local token, delivered = math.max((counters[1] or 0) + 1, time), counters[2] or 0
local pop_limit, stale, seen, without_payload, claimed_pairs = wanted + 1000, {ready = 0, retry = 0}, {}, {}, {}
-- Claims up to n entries of a list. Stale entries, whose ids have moved elsewhere since, are skipped.
local function take(list, state, n)
  if reports and state == 'retry' and n > 0 then n = at_once(list, deliveries, n) end
  while n > 0 and pop_limit > 0 and alone == 0 do
    local popped = redis.call('LPOP', list, math.min(n, pop_limit))
    if not popped or #popped == 0 then return end
    pop_limit = pop_limit - #popped
    local found = redis.call('HMGET', deliveries, unpack(popped))
    for i, id in ipairs(popped) do
      local is, due, attempt, first, _, last_holder = read(found[i] or '')
      if is ~= state or seen[id] then
        stale[state] = stale[state] + 1
      else
        local new_token, mark = string.format('%.0f', token), reports and mark_of(last_holder)
        local suspect = mark and (mark == '!' or state == 'retry')
        if bytes_left <= 0 or suspect and #ids > 0 then return put_back(list, popped, i) end
        local payload = read_payload(messages, id)
        if payload then
          claim(id, new_token, payload, due, string.format('%d', attempt + 1),
            first == '0' and new_token or first, suspect and marked(consumer, '!') or consumer, suspect)
          token, n, claimed_pairs[#ids] = token + 1, n - 1, id .. ' ' .. new_token
          if suspect then return put_back(list, popped, i + 1) end
        else
          without_payload[#without_payload + 1] = id
        end
        seen[id] = true
      end
    end
  end
end
-- Retries do not starve: one of every four deliveries may come from retry first. Nor does ready, beside large retries.
take(retry, 'retry', math.floor((delivered + wanted) / 4) - math.floor(delivered / 4))
bytes_left = math.max(bytes_left, 1)
take(ready, 'ready', wanted - #ids)
take(retry, 'retry', wanted - #ids)
for list, n in pairs(stale) do if n > 0 then skipped(meta, 'stale_' .. list, n) end end
if #without_payload > 0 then redis.call('HDEL', deliveries, unpack(without_payload)) end
local claimed = build_reply()
-- A consumer that leaves work behind wakes the next one, so that a burst wakes as many as it needs.
if claimed[3] > 0 then signal(wake) end
if #ids > 0 then
  redis.call('HSET', meta, 'token', tokens[#tokens])
  redis.call('HINCRBY', meta, 'delivered', #ids)
end
remember(replies, slot, sequence, now, table.concat(claimed_pairs, ' '))
log(events, meta, logged, 'delivered', now, 'holder', unmarked(consumer), 'ids', ids, 'tokens', tokens,
  'dues', dues, 'attempts', attempts, 'retries', claimed[7])
return claimed
