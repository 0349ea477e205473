-- Examines entries of the dead letter, and mends those of which a part is missing: one without its message goes, a
-- message without its entry gets one again.
-- KEYS: dead zset, dead_messages hash, dead_ids hash, meta hash, replies hash
-- ARGV: slot, sequence, now (ms or ''), mend (1, or 0 to look only), then entries (id:token)
-- Returns: a digit an entry: 0 well, 1 entry without message, 2 message without entry, 3 tokens of its id out of step
-- Re-run: answers what it answered; a call that only looks has nothing to remember and looks again.
-- Uses: clock, once, dead
local dead, dead_messages, dead_ids, meta, replies = unpack(KEYS)
local slot, sequence, override, mend = unpack(ARGV, 1, 4)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
for _, hash in ipairs({dead_messages, dead_ids, meta}) do redis.call('HLEN', hash) end
local answers, seen, gone, stray, back, untold, ill = {}, {}, {}, {}, {}, {}, 0
for i = 5, #ARGV do
  local entry, answer = ARGV[i], '0'
  local id, token = string.match(entry, '^(.*):(%d+)$')
  local listed = redis.call('ZSCORE', dead, entry)
  local there = redis.call('HEXISTS', dead_messages, entry) == 1
  local known = id and (' ' .. (redis.call('HGET', dead_ids, id) or '') .. ' '):find(' ' .. token .. ' ', 1, true)
  if seen[entry] or not id and there then -- what is no entry, though it has a message, is not ours to judge
    answer = '0'
  elseif not there then
    answer = listed and '1' or known and '3' or '0'
    if answer ~= '0' then table.insert(id and gone or stray, entry) end
  else
    answer = not listed and '2' or not known and '3' or '0'
    if not listed then back[#back + 1] = entry end
    if not known then untold[#untold + 1] = {id, token} end
  end
  if answer ~= '0' then ill = ill + 1 end
  answers[#answers + 1], seen[entry] = answer, true
end
local answer = table.concat(answers)
if mend == '0' then return answer end

begin(replies, slot)
if #gone > 0 then exhume(dead, dead_messages, dead_ids, gone) end
if #stray > 0 then redis.call('ZREM', dead, unpack(stray)) end
for _, entry in ipairs(back) do
  local died = string.match(redis.call('HGET', dead_messages, entry), '^%d+ %d+ %d+ (%d+) ')
  redis.call('ZADD', dead, died or string.format('%.0f', now), entry)
end
for _, death in ipairs(untold) do
  local tokens = {death[2]}
  for token in string.gmatch(redis.call('HGET', dead_ids, death[1]) or '', '%d+') do tokens[#tokens + 1] = token end
  table.sort(tokens, function(one, other) return tonumber(one) < tonumber(other) end)
  redis.call('HSET', dead_ids, death[1], table.concat(tokens, ' '))
end
if ill > 0 then redis.call('HINCRBY', meta, 'repaired', ill) end
return remember(replies, slot, sequence, now, answer)
