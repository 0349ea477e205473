-- Replaces files by day by one that has all their messages.
-- KEYS: cold hash
-- ARGV: file, rows (its messages), then the names of the old files
-- Returns: 1 if the file counts in their place, 0 if one of them is not in the tier as a whole any more
-- Re-run: changes nothing more.
local cold = KEYS[1]
local file, rows = unpack(ARGV, 1, 2)
if redis.call('HGET', cold, 'file ' .. file) == string.format('%s 0', rows) then return 1 end
local whole = 0
for i = 3, #ARGV do
  local part = string.match(redis.call('HGET', cold, 'file ' .. ARGV[i]) or '', '^(%d+) 0$')
  if not part then return 0 end
  whole = whole + part
end
if whole ~= tonumber(rows) then return 0 end
redis.call('HSET', cold, 'file ' .. file, string.format('%s 0', rows))
for i = 3, #ARGV do
  redis.call('HDEL', cold, 'file ' .. ARGV[i])
  redis.call('HSET', cold, 'back ' .. ARGV[i], '1')
end
return 1
