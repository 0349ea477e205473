-- Sends that hold their ids, also once their messages have ended.
local asks = false

-- Notes what the attributes of a message that is about to be stored say, and looks at the type of what is written.
local function note_ask(done, now, id, text)
  if not string.find(text, 'unique_%a+=') then return end
  local span = string.match(text, 'unique_for=(%d+)')
  redis.call('ZCARD', done)
  asks = true
  if span then note_held(id, nil, now + span) end
end

local function hold_asked(done, meta, now)
  if not asks then return end
  redis.call('HSET', meta, 'unique', '1')
  hold(done, now)
end
