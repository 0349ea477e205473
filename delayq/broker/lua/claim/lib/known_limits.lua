-- The limits that a claim has met. Those of many messages are read with two commands. A limit that is new to the claim
-- takes several times as long as a message under a known one, so the claim ends when it has met many; a key counts half.
local limits_left = 300

-- Returns the limit of a scope by its text; false if it has none.
local function limit_of(running, scope, text)
  local one = limiting.known[scope]
  if one == nil then
    one = read_limit(text) or false
    if one then
      one.scope, one.place, limits_left = scope, string.format('%d', one.number), limits_left - 2
      one.line = one.number > 0 and not limiting.emptied[one.number] and limiting.gates[one.place]
      one.lined, one.changed = one.line, bring_near(one, limiting.time)
      if is_over(one, limiting.time) and not one.line then
        limiting.over[#limiting.over + 1], one = scope, false
      elseif one.places > 0 and one.number > 0 then
        one.used = redis.call('ZCOUNT', running, one.number, one.number)
      end
    end
    limiting.known[scope] = one
  end
  return one
end

local function limit_of_queue(limits, running)
  local one = limiting.known.queue
  return one == nil and limit_of(running, 'queue', redis.call('HGET', limits, 'queue')) or one
end

local function scope_in(text)
  local name = text and string.match(' ' .. text, ' name=(%S+)')
  return name and 'name:' .. name
end

-- Reads those of messages with these attributes (texts), from one on, that the claim has not read yet.
local function read_limits(limits, gates, texts, first)
  local scopes, numbers = {}, {}
  for n = first, #texts do
    local scope = scope_in(texts[n])
    if scope and limiting.stored[scope] == nil then scopes[#scopes + 1], limiting.stored[scope] = scope, false end
  end
  for n, text in ipairs(redis.call('HMGET', limits, unpack(scopes))) do
    limiting.stored[scopes[n]], numbers[n] = text, string.match(text or '', '^%d+') or '0'
  end
  for n, at in ipairs(redis.call('ZMSCORE', gates, unpack(numbers))) do limiting.gates[numbers[n]] = at end
end

-- Returns the limit of one of several messages by their attributes (texts); false or nil if it has none.
local function limit_of_message(limits, gates, running, texts, at)
  local text = texts[at]
  local one = limiting.by_text[text]
  if one == nil then
    local scope = scope_in(text)
    if scope and limiting.stored[scope] == nil then read_limits(limits, gates, texts, at) end
    one = scope and limit_of(running, scope, limiting.stored[scope]) or false
    limiting.by_text[text] = one
  end
  return one
end
