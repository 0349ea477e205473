-- Stores the progress of a leased message among its attributes.
-- KEYS: deliveries hash, attributes hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), id, token, progress (base64)
-- Returns: status: 1 stored, 0 not leased under this token
-- Re-run: returns the same reply.
-- Uses: bytes, clock, once, schema, attributed, record
local deliveries, attributes, meta = unpack(KEYS)
local slot, sequence, override, id, token, progress = unpack(ARGV, 1, 6)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
redis.call('HLEN', meta)
local state, _, _, _, held = read(redis.call('HGET', deliveries, id) or '')
local leased = state == 'leased' and held == token
local kept = leased and read_payload(attributes, id) or ''
local others = string.match(' ' .. kept, '^ (.*) progress=%S*$') or string.match(kept, '^progress=') and '' or kept
begin(meta, slot)
if leased then
  redis.call('HSET', attributes, id, (others ~= '' and others .. ' ' or '') .. 'progress=' .. progress)
  note_attributes(meta)
end
return remember(meta, slot, sequence, now, leased and '1' or '0')
