-- Keys. A template, such as account:*, is stored as a limit: the scope is "key:account:*", the reason `in_order` if a message
-- keeps its place until it ends. The limit of each key that begins so is stored nowhere: it is there while messages take
-- its places, or wait for them. One that takes a place is in `running` as " id", by the number of the key; an odd one says
-- that it keeps the place. One that waits is in `key_lines` as "number rank id", with score 0: numbers and ranks have a
-- fixed width, so each line is in the order of ranks. It is in `throttled`, too, in the line of the template. From there
-- messages leave at any time; then the entry in `key_lines` is stale, and the claim that meets it removes it.
local first_template, max_template, first_key, kept_place = 8001, 8100, 16384, 'in_order'

-- Returns the prefix of the keys that a scope is the template of; nil for one of a name or of the queue.
local function prefix_of(scope)
  return string.match(scope, '^key:(%S*)%*$')
end

-- Returns the number of a key: 48 bits that stand for its text, doubled, so that it is even.
local function key_number(key)
  local high, low = 1, 1
  for n = 1, #key do
    local byte = string.byte(key, n)
    high, low = (high * 9124567 + byte) % 16777213, (low * 12389111 + byte) % 16777199
  end
  return first_key + 2 * (high * 16777216 + low)
end

local function key_in(text)
  return text and string.match(' ' .. text, ' key=(%S+)')
end

-- Returns the place of a message of a key: the score and the member.
local function key_place(number, id, reason)
  return string.format('%.0f', number + (reason == kept_place and 1 or 0)), ' ' .. id
end

local function key_entry(number, order, id)
  return string.format('%015.0f %013.0f %s', number, order, id)
end

-- Returns the bounds of the line of a key, by lex.
local function key_line_of(number)
  return string.format('[%015.0f ', number), string.format('(%015.0f!', number)
end

-- Returns the scopes of the templates that a setting of `limited` tells of.
local function templates_in(setting)
  local scopes = {}
  for template in string.gmatch(setting or '', ' (%S*%*)') do scopes[#scopes + 1] = 'key:' .. template end
  return scopes
end

local function begins(key, prefix)
  return string.sub(key, 1, #prefix) == prefix
end

-- Returns how many of the first thousands of places of keys are of a template.
local function taken_by(running, attributes, prefix)
  local members, count = redis.call('ZRANGEBYSCORE', running, first_key, '+inf', 'LIMIT', 0, 5000), 0
  for first = 1, #members, 1000 do
    local ids = {}
    for n = first, math.min(first + 999, #members) do ids[#ids + 1] = string.sub(members[n], 2) end
    for _, text in ipairs(redis.call('HMGET', attributes, unpack(ids))) do
      local key = key_in(text)
      if key and begins(key, prefix) then count = count + 1 end
    end
  end
  return count
end
