-- Stores a batch of another partition's dead letter, once.
-- KEYS: dead zset, dead_messages hash, dead_ids hash, moving hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), source (name of the partition), number (of the batch), batch
-- Returns: 1 stored, 2 it has arrived before
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, schema, attributed, pack, batch
local dead, dead_messages, dead_ids, moving, meta = unpack(KEYS)
local slot, sequence, override, source, number, batch = unpack(ARGV)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
for _, hash in ipairs({dead_messages, moving}) do redis.call('HLEN', hash) end
redis.call('ZCARD', dead)
local status, ids, tokens_of = arrival(moving, 'deaths', source, number), {}, {}
local next_cell, rows, attributed = cells_of(status == '1' and batch or ''), {}, false
for entry in next_cell do
  local id, token = string.match(entry, '^(.*):(%d+)$')
  local row = {entry = entry, died = next_cell(), stored = next_cell()}
  local _, stop, reason_size, error_size, header_size, size =
    string.find(row.stored, '^%d+ %d+ %d+ %d+ (%d+) (%d+) (%d+) (%d+)\n')
  if stop then
    local at = stop + reason_size + error_size + header_size
    note_kinds(string.sub(row.stored, at + 1, at + size))
    attributed = true
  end
  rows[#rows + 1] = row
  if not tokens_of[id] then
    tokens_of[id], ids[#ids + 1] = {}, id
    for known in string.gmatch(redis.call('HGET', dead_ids, id) or '', '%d+') do tokens_of[id][known] = true end
  end
  tokens_of[id][token] = true
end

-- Adds before it removes, as a send: a full Redis must refuse its first write.
for _, row in ipairs(rows) do
  redis.call('ZADD', dead, row.died, row.entry)
  redis.call('HSET', dead_messages, row.entry, row.stored)
end
for _, id in ipairs(ids) do
  local tokens = {}
  for token in pairs(tokens_of[id]) do tokens[#tokens + 1] = token end
  table.sort(tokens, function(one, other) return tonumber(one) < tonumber(other) end)
  redis.call('HSET', dead_ids, id, table.concat(tokens, ' '))
end
if attributed then note_attributes(meta) end
if status == '1' then note_arrival(moving, 'deaths', source, number) end
return remember(meta, slot, sequence, now, status)
