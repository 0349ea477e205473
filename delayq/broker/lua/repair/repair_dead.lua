-- Examines entries of the dead letter, and repairs incomplete ones: an entry without its message is deleted, a message
-- without its entry gets a new one.
-- KEYS: dead zset, dead_messages hash, dead_ids hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), fix (1, or 0 to inspect only), then entries (id:token)
-- Returns: a status for each of the first entries: 0 correct, 1 entry without message, 2 message without entry,
--   3 tokens of its id wrong
-- Re-run: returns the same reply; a call that only inspects is not remembered and runs again.
-- Uses: bytes, clock, numbers, once, dead
local dead, dead_messages, dead_ids, meta = unpack(KEYS)
local slot, sequence, override, fix = unpack(ARGV, 1, 4)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
for _, hash in ipairs({dead_messages, dead_ids, meta}) do redis.call('HLEN', hash) end
local statuses, seen, gone, malformed, to_list, unlisted, unlisted_ids, defects = {}, {}, {}, {}, {}, {}, {}, 0
local known_tokens = {}

-- Returns the tokens of an id as a set. It reads them once, however many of its entries are examined.
local function tokens_of(id)
  if not known_tokens[id] then
    known_tokens[id] = {}
    for token in string.gmatch(redis.call('HGET', dead_ids, id) or '', '%d+') do known_tokens[id][token] = true end
  end
  return known_tokens[id]
end

for i = 5, #ARGV do
  if bytes_left <= 0 then break end
  local entry, status = ARGV[i], '0'
  local id, token = string.match(entry, '^(.*):(%d+)$')
  local listed = redis.call('ZSCORE', dead, entry)
  local has_message = redis.call('HEXISTS', dead_messages, entry) == 1
  local known = id and tokens_of(id)[token]
  if seen[entry] or not id and has_message then -- not an entry of ours, although it has a message
    status = '0'
  elseif not has_message then
    status = listed and '1' or known and '3' or '0'
    if status ~= '0' then table.insert(id and gone or malformed, entry) end
  else
    status = not listed and '2' or not known and '3' or '0'
    if not listed then
      local died = string.match(read_payload(dead_messages, entry), '^%d+ %d+ %d+ (%d+) ')
      to_list[#to_list + 1], to_list[#to_list + 2] = died or string.format('%.0f', now), entry
    end
    if not known then
      if not unlisted[id] then unlisted[id], unlisted_ids[#unlisted_ids + 1] = {}, id end
      table.insert(unlisted[id], token)
    end
  end
  if status ~= '0' then defects = defects + 1 end
  statuses[#statuses + 1], seen[entry] = status, true
end
local reply = table.concat(statuses)
if fix == '0' then return reply end

begin(meta, slot)
if #gone > 0 then remove_dead_entries(dead, dead_messages, dead_ids, gone) end
if #malformed > 0 then redis.call('ZREM', dead, unpack(malformed)) end
if #to_list > 0 then redis.call('ZADD', dead, unpack(to_list)) end
for _, id in ipairs(unlisted_ids) do
  local tokens = unlisted[id]
  for token in string.gmatch(redis.call('HGET', dead_ids, id) or '', '%d+') do tokens[#tokens + 1] = token end
  table.sort(tokens, function(one, other) return tonumber(one) < tonumber(other) end)
  redis.call('HSET', dead_ids, id, table.concat(tokens, ' '))
end
if defects > 0 then increase(meta, 'repaired', defects) end
return remember(meta, slot, sequence, now, reply)
