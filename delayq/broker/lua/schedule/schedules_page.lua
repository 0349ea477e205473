-- Reads schedules: those named, or a page of all; fewer if they are large.
-- KEYS: schedules zset, schedule_specs hash, schedule_states hash, meta hash
-- ARGV: now (ms or ''), cursor (0 at the start), limit (schedules), then names (none for all)
-- Returns: now (ms), the latest time (ms) at which schedules were written, the release of the time zone data by which
--   all were planned ('' if not noted), cursor of the next page (0 at the end), then of each schedule: name, next
--   occurrence (ms, nil for none), spec, state
-- Re-run: reads only.
-- Uses: bytes, clock
local schedules, schedule_specs, schedule_states, meta = unpack(KEYS)
local override, cursor, limit = unpack(ARGV, 1, 3)

local page = {'0', {}}
for i = 4, #ARGV do
  local spec = bytes_left > 0 and read_payload(schedule_specs, ARGV[i])
  if spec then
    page[2][#page[2] + 1] = ARGV[i]
    page[2][#page[2] + 1] = spec
  end
end
if not ARGV[4] then page = scan_payloads(schedule_specs, cursor, tonumber(limit)) end
local noted = redis.call('HMGET', meta, 'schedules_at', 'schedules_zones')
local found = {math.floor(clock(override) / 1000), tonumber(noted[1]) or 0, noted[2] or '', page[1]}
for i = 1, #page[2], 2 do
  local name, spec = page[2][i], page[2][i + 1]
  local at, state = redis.call('ZSCORE', schedules, name), redis.call('HGET', schedule_states, name) or ''
  local n = #found
  found[n + 1], found[n + 2], found[n + 3], found[n + 4] = name, at, spec, state
end
return found
