-- Notes the files by day that a spilled file was divided into, so that these count. Gives a file up that has no messages of
-- the queue yet.
-- KEYS: cold hash
-- ARGV: now (ms or ''), file, known (what is known of it, '' for nothing), then per day: its file, its messages
-- Returns: which messages were moved to the file, a status each (see `spill`), and if this is what was known, the files are
--   noted; "void" and a time (ms) for a file that is given up, - for one whose files have been noted
-- Re-run: changes nothing more.
-- Uses: clock
local cold = KEYS[1]
local override, file, known = unpack(ARGV, 1, 3)
local field = 'moved ' .. file
local moved = redis.call('HGET', cold, field)
if known == '' and not moved then
  moved = string.format('void %.0f', math.floor(clock(override) / 1000))
  redis.call('HDEL', cold, field) -- a full Redis refuses what adds first
  redis.call('HSET', cold, field, moved)
elseif moved == known then
  redis.call('HDEL', cold, field)
  for i = 4, #ARGV, 2 do redis.call('HSET', cold, 'file ' .. ARGV[i], ARGV[i + 1] .. ' 0') end
end
return moved or '-'
