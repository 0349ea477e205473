-- Ids that a send holds until ends of their own, collected first and stored together.
local holds, held = false, {}

-- Notes what the attributes of a message that is about to be stored say, and looks at the type of what is written.
local function note_end(done, now, id, text)
  if not string.find(text, 'unique_%a+=') then return end
  local span = string.match(text, 'unique_for=(%d+)')
  redis.call('ZCARD', done)
  holds = true
  if span then held[#held + 1], held[#held + 2] = string.format('%.0f.5', now + span), id end
end

local function hold(done, meta)
  if not holds then return end
  redis.call('HSET', meta, 'unique', '1')
  if #held > 0 then redis.call('ZADD', done, unpack(held)) end
end
