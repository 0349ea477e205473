-- Asks the consumers of leased messages to return those whose callbacks have not started. It wakes one: an idle consumer
-- may hold a message until it is due.
-- KEYS: deliveries hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), then ids
-- Returns: a status per id: 1 asked, 2 not leased, 0 started
-- Re-run: returns the same reply.
-- Uses: clock, once, record, started, signal
local deliveries, meta, wake = unpack(KEYS)
local slot, sequence, override = unpack(ARGV, 1, 3)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local ids = {}
for i = 4, #ARGV do ids[#ids + 1] = ARGV[i] end
local statuses, records, asked = {}, {}, false
for n, record in ipairs(redis.call('HMGET', deliveries, unpack(ids))) do
  local state, due, attempts, first, token, consumer = read(record or '')
  local mark = state == 'leased' and mark_of(consumer) or '+'
  statuses[n] = state ~= 'leased' and '2' or (mark == '+' or mark == '*') and '0' or '1'
  asked = asked or statuses[n] == '1'
  if mark == '?' then
    records[#records + 1] = ids[n]
    records[#records + 1] = write(state, due, attempts, first, token, marked(consumer, '-'))
  end
end
if asked then redis.call('LLEN', wake) end
begin(meta, slot)
if #records > 0 then redis.call('HSET', deliveries, unpack(records)) end
if asked then signal(wake) end
return remember(meta, slot, sequence, now, table.concat(statuses))
