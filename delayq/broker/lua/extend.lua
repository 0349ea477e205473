-- Renews the leases of messages that are still leased under their tokens.
-- KEYS: unack zset, deliveries hash, replies hash
-- ARGV: slot, sequence, now (ms or ''), lease (ms), then per receipt: id, token
-- Returns: a status per receipt: 1 renewed, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: clock, once, record
local unack, deliveries, replies = unpack(KEYS)
local slot, sequence, override, lease = unpack(ARGV, 1, 4)
local past = answered(replies, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local ids = {}
for i = 5, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', deliveries, unpack(ids))
redis.call('ZCARD', unack)
local statuses, deadlines = {}, {}
for n, id in ipairs(ids) do
  local state, _, _, _, token = read(known[n] or '')
  statuses[n] = '0'
  if state == 'leased' and token == ARGV[4 + 2 * n] then
    statuses[n] = '1'
    deadlines[#deadlines + 1], deadlines[#deadlines + 2] = now + lease, id
  end
end
begin(replies, slot)
if #deadlines > 0 then redis.call('ZADD', unack, unpack(deadlines)) end
return remember(replies, slot, sequence, now, table.concat(statuses))
