-- Renews the leases of messages that are still leased under their tokens, or notes that their callbacks have started.
-- KEYS: unack zset, deliveries hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), lease (ms), started (0 or 1), then per receipt: id, token
-- Returns: a status per receipt: 1 renewed, 2 renewed and asked to stop, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: clock, once, record, started
local unack, deliveries, meta = unpack(KEYS)
local slot, sequence, override, lease, started = unpack(ARGV, 1, 5)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local ids = {}
for i = 6, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', deliveries, unpack(ids))
redis.call('ZCARD', unack)
local statuses, deadlines, records = {}, {}, {}
for n, id in ipairs(ids) do
  local state, due, attempts, first, token, consumer = read(known[n] or '')
  statuses[n] = '0'
  if state == 'leased' and token == ARGV[5 + 2 * n] then
    local stopping = mark_of(consumer) == '*'
    statuses[n] = stopping and '2' or '1'
    if started == '1' and not stopping then
      records[#records + 1] = id
      records[#records + 1] = write(state, due, attempts, first, token, marked(consumer, '+'))
    elseif started ~= '1' then
      deadlines[#deadlines + 1], deadlines[#deadlines + 2] = now + lease, id
    end
  end
end
begin(meta, slot)
if #deadlines > 0 then redis.call('ZADD', unack, unpack(deadlines)) end
if #records > 0 then redis.call('HSET', deliveries, unpack(records)) end
return remember(meta, slot, sequence, now, table.concat(statuses))
