-- Acknowledges what is staged under one number of a reader and still leased under its token, and deletes the number. What
-- was settled before, or whose lease has expired, stays as it is.
-- KEYS: deliveries hash, meta hash, readers hash, staged hash, pending zset, ranked zset, throttled zset, unack zset,
--   running zset, gates zset, garbage set, retries hash, messages hash, headers hash, attributes hash, errors hash,
--   successors hash, events stream, done zset, wake list
-- ARGV: slot, sequence, now (ms or ''), reader, run, number
-- Returns: "acked late more": ids, -1 for a run that another has followed; ids that were claimed again since; 1 if the byte
--   budget has left some for another call
-- Re-run: returns the same reply.
-- Runs: ack
-- Uses: clock, numbers, once, record
local deliveries, meta, readers, staged = unpack(KEYS, 1, 4)
local slot, sequence, override, reader, run, number = unpack(ARGV, 1, 6)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local state, known_run = unpack(redis.call('HMGET', readers, reader, reader .. ' run'))
local first, rest = string.match(state or '', '^(%d+)( .*)$')
local name = reader .. ' ' .. number
local text = redis.call('HGET', staged, name) or ''
if known_run ~= run then
  begin(meta, slot)
  return remember(meta, slot, sequence, now, '-1 0 0')
end
local lines, at = string.match(text, '^(.-)\n\n()')
local ids, tokens, arguments, late = {}, {}, {slot, sequence, override, 'acked'}, 0
for size, token in string.gmatch(lines or '', '(%d+) (%d+)[^\n]*') do
  ids[#ids + 1], tokens[#tokens + 1], at = string.sub(text, at, at + size - 1), token, at + size
end
for n, record in ipairs(#ids > 0 and redis.call('HMGET', deliveries, unpack(ids)) or {}) do
  local held, _, _, first_token, token = read(record or '')
  if held == 'leased' and token == tokens[n] then
    arguments[#arguments + 1], arguments[#arguments + 2] = ids[n], token
  elseif held and first_token ~= '0' and tonumber(first_token) <= tonumber(tokens[n])
    and tonumber(tokens[n]) < tonumber(token) then
    late = late + 1
  end
end
local statuses, wanted = '', (#arguments - 4) / 2
if wanted > 0 then statuses = ack(arguments) end
local is_done = #statuses == wanted
if is_done then
  redis.call('HDEL', staged, name, name .. ' texts', name .. ' withheld')
  if first == number then redis.call('HSET', readers, reader, sum(number, 1) .. rest) end
end
local _, acked = string.gsub(statuses, '1', '')
return remember(meta, slot, sequence, now, string.format('%d %d %d', acked, late, is_done and 0 or 1))
