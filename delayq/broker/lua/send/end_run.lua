-- Ends a run of bulk sends in the ledger, or an epoch of it, and stores what was refused before sending.
-- KEYS: runs hash, refusals hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), run, state (committed|aborted), epoch (an increasing number, -1 for none),
--   refused (messages), refusals (text, '' for none), max_runs (to keep)
-- Returns: the record of the run
-- Re-run: returns the same reply; an epoch that ended before is not counted again.
-- Uses: clock, once, run
local runs, refusals, meta = unpack(KEYS)
local slot, sequence, override, run, state, epoch, refused, texts, max_runs = unpack(ARGV, 1, 9)
local past = answered(meta, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
local record = run_of(runs, run, now)
redis.call('HLEN', refusals)
begin(meta, slot)
local again = tonumber(epoch) >= 0 and tonumber(epoch) <= tonumber(record[4])
record[1], record[3] = state, string.format('%.0f', now)
if not again then
  if tonumber(epoch) >= 0 then record[4] = epoch end
  record[10] = string.format('%.0f', record[10] + refused)
  if texts ~= '' then redis.call('HSET', refusals, run, texts) end
end
local text = table.concat(record, ' ')
redis.call('HSET', runs, run, text)

-- Deletes the run that ended first if there are too many.
if redis.call('HLEN', runs) > tonumber(max_runs) then
  local first, ended_first
  local all = redis.call('HGETALL', runs)
  for i = 1, #all, 2 do
    local ended = tonumber(string.match(all[i + 1], '^%a+ %d+ (%d+)'))
    if ended and ended > 0 and all[i] ~= run and (not first or ended < ended_first) then first, ended_first = all[i], ended end
  end
  if first then
    redis.call('HDEL', runs, first)
    redis.call('HDEL', refusals, first)
  end
end
return remember(meta, slot, sequence, now, text)
