-- Sends dead messages again, as they were sent; one whose id lives stays where it is.
-- KEYS: stream stream, ids set, dead stream, replies hash
-- ARGV: slot, sequence, retries ('' for as many as at first), then entries of the dead letter
-- Returns: a digit an entry: 1 redriven, 2 its id lives, 0 gone
-- Re-run: answers what it answered.
-- Uses: clock, once, pel
local stream, ids, dead, replies = unpack(KEYS)
local slot, sequence, retries = unpack(ARGV, 1, 3)
local past = answered(replies, slot, sequence)
if past then return past end

local now, answers = math.floor(clock('') / 1000), {}
for _, key in ipairs({stream, dead}) do redis.call('XLEN', key) end
redis.call('SISMEMBER', ids, '') -- which only those may ask who may send
begin(replies, slot)
for i = 4, #ARGV do
  local row, answer = read(dead, ARGV[i]), '1'
  local id = row and field(row, 'unique') and field(row, 'id')
  if not row then
    answer = '0'
  elseif id and redis.call('XLEN', stream) > 0 and redis.call('SISMEMBER', ids, id) == 1 then
    answer = '2'
  else
    -- The last six cells are of its death.
    local fields = {unpack(row, 1, #row - 6)}
    local place = #fields + 1
    for n = 1, #fields, 2 do
      if fields[n] == 'retries' then place = n end
    end
    if retries ~= '' then fields[place], fields[place + 1] = 'retries', retries end
    if id then redis.call('SADD', ids, id) end
    redis.call('XADD', stream, '*', unpack(fields))
    redis.call('XDEL', dead, ARGV[i])
  end
  answers[#answers + 1] = answer
end
return remember(replies, slot, sequence, now, table.concat(answers))
