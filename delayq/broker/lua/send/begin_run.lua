-- Begins a run of bulk sends in the ledger, or resumes it: its horizon then spans the calls.
-- KEYS: runs hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), run, start (ms, - for none), stop (ms, - for none), source (- for none)
-- Returns: the record of the run
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, run
local runs, meta = unpack(KEYS)
local slot, sequence, override, run, start, stop, source = unpack(ARGV)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local record = run_of(runs, run, now)
-- Without a limit on one of the two sides there is none on both.
local function wider(known, given, widest)
  if known ~= '-' and not whole(known) then return given end
  if known == '-' or given == '-' then return '-' end
  return string.format('%.0f', widest(known, given))
end
start, stop = wider(record[11], start, math.min), wider(record[12], stop, math.max)
begin(meta, slot)
record[1], record[3], record[11], record[12], record[13] = 'writing', '0', start, stop, source
local text = table.concat(record, ' ')
redis.call('HSET', runs, run, text)
return remember(meta, slot, sequence, now, text)
