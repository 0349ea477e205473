-- Settles some of the payloads that a leased message has collected: the others remain as its payload.
-- KEYS: messages hash, deliveries hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), id, token, payload (of those that remain)
-- Returns: status: 1 settled, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: bytes, clock, once, record
local messages, deliveries, meta = unpack(KEYS)
local slot, sequence, override, id, token, payload = unpack(ARGV, 1, 6)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local state, _, _, _, held = read(redis.call('HGET', deliveries, id) or '')
local leased = state == 'leased' and held == token and read_payload(messages, id)
begin(meta, slot)
if leased then redis.call('HSET', messages, id, payload) end
return remember(meta, slot, sequence, now, leased and '1' or '0')
