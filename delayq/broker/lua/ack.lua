-- Settles messages as done and deletes them. The first receipt of this life wins, even after its lease expired.
-- KEYS: pending zset, unack zset, garbage set, retries hash, messages hash, deliveries hash, headers hash, errors hash,
--   events stream, done zset, meta hash, replies hash
-- ARGV: slot, sequence, now (ms or ''), counter (acked|discarded), then per receipt: id, token
-- Returns: a status per receipt: 1 settled by it, 0 settled before, dead, or from an earlier life
-- Re-run: returns the same reply.
-- Uses: clock, once, record, leave, erase, log, done
local pending, unack, garbage, retries, messages, deliveries, headers, errors, events, done, meta, replies =
  unpack(KEYS)
local slot, sequence, override, counter = unpack(ARGV, 1, 4)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local ids = {}
for i = 5, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local records = redis.call('HMGET', deliveries, unpack(ids))
redis.call('ZCARD', pending)
redis.call('ZCARD', unack)
for _, hash in ipairs({messages, retries, headers, errors}) do redis.call('HLEN', hash) end
local logged, window = switched(meta, done)
local statuses, ended, tokens, seen = {}, {}, {}, {}
for n, id in ipairs(ids) do
  local token = tonumber(ARGV[4 + 2 * n])
  local state, _, _, first, last = read(records[n] or '')
  statuses[n] = '0'
  if state and state ~= 'garbage' and not seen[id]
    and first ~= '0' and tonumber(first) <= token and token <= tonumber(last) then
    statuses[n], seen[id], ended[#ended + 1], tokens[#tokens + 1] = '1', true, id, ARGV[4 + 2 * n]
    leave(state, id)
  end
end
begin(replies, slot)
if #ended > 0 then
  erase(messages, retries, deliveries, headers, errors, ended)
  depart(pending, unack, garbage, meta)
  redis.call('HINCRBY', meta, counter, #ended)
  settle(done, window, now, ended)
end
local reply = remember(replies, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, counter, now, 'ids', ended, 'tokens', tokens)
return reply
