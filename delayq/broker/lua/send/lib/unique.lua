-- Ids that a send holds until ends of their own, collected first and stored together.
local holds, held, last_held = false, {}, 0

-- Notes what the attributes of a message that is about to be stored say, and looks at the type of what is written.
local function note_end(done, now, id, text)
  if not string.find(text, 'unique_%a+=') then return end
  local span = string.match(text, 'unique_for=(%d+)')
  redis.call('ZCARD', done)
  holds = true
  if not span then return end
  held[#held + 1], held[#held + 2] = string.format('%.0f.5', now + span), id
  last_held = math.max(last_held, now + span)
end

local function hold(done, meta, window, now)
  if not holds then return end
  redis.call('HSET', meta, 'unique', '1')
  if #held == 0 then return end
  redis.call('ZADD', done, unpack(held))
  let_last(last_held, now, tonumber(string.match(window or '0', '^%d+')), done, nil)
end
