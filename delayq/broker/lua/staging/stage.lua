-- Claims messages for a reader, as `ready_to_unack` does, and stores what it has claimed under the reader's next number, so
-- that it can be read again. A run of the reader that another one has followed claims nothing.
-- KEYS: meta hash, readers hash, staged hash, ready list, ranked zset, retry list, unack zset, retries hash, messages hash,
--   deliveries hash, headers hash, attributes hash, limits hash, gates zset, throttled zset, running zset, key_lines zset,
--   events stream, wake list
-- ARGV: slot, sequence, now (ms or ''), wanted (ids), lease (ms), consumer, reader, run, after (number)
-- Returns: "number staged left now unsure": the last number of the reader, -1 for a run that another has followed; ids
--   stored under it by this call; entries left in ready, ranked and retry; ms; ids that may expire, have hours or join a group
-- Re-run: returns the same reply.
-- Runs: ready_to_unack
-- Uses: clock, numbers, once
local meta, readers, staged = unpack(KEYS, 1, 3)
local slot, sequence, override, wanted, lease, consumer, reader, run, after = unpack(ARGV, 1, 9)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local state, known_run = unpack(redis.call('HMGET', readers, reader, reader .. ' run'))
redis.call('HLEN', staged)
if known_run ~= run then return remember(meta, slot, sequence, now, string.format('-1 0 0 %.0f 0', now)) end
-- Changes nothing: a full Redis refuses a script whose first write may add data, and what is claimed is stored twice.
redis.call('HSETNX', readers, reader .. ' run', run)
local first, last = string.match(state or '', '^(%d+) (%d+) ')
last = math.max(whole(last) or after, after)
first = math.min(whole(first) or math.huge, last + 1)

local claimed = ready_to_unack({slot, sequence, override, wanted, lease, consumer})
local retry_counts, lines, ids, texts, unsure = claimed[6], {}, {}, {}, 0
for n = 1, #retry_counts do
  local id, token, payload, due, attempt, header_text, attribute_text = unpack(claimed, 7 * n, 7 * n + 6)
  header_text, attribute_text, ids[n] = header_text or '', attribute_text or '', id
  lines[n] = string.format('%d %s %s %s %d %d %d %d', #id, token, due, attempt, whole(retry_counts[n]) or 0,
    #payload, #header_text, #attribute_text)
  if string.find(attribute_text, '%f[%a][ehj]%a+=') then unsure = unsure + 1 end
  texts[3 * n - 2], texts[3 * n - 1], texts[3 * n] = payload, header_text, attribute_text
end
if #ids > 0 then
  last = last + 1
  local name = string.format('%s %.0f', reader, last)
  redis.call('HSET', staged, name, table.concat(lines, '\n') .. '\n\n' .. table.concat(ids), name .. ' texts',
    table.concat(texts))
end
redis.call('HSET', readers, reader, string.format('%.0f %.0f %.0f %s', first, last, now, lease))
local reply = string.format('%.0f %d %d %.0f %d', last, #ids, claimed[3], now, unsure)
return remember(meta, slot, sequence, now, reply)
