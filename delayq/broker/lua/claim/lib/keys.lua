-- Claims under templates: the limits of keys, see `key`. A message takes the place of its key first. Then it may wait for
-- its name, and keeps that place, so that no other of its key overtakes it.

-- Reads the templates, once for a claim.
local function read_templates(limits)
  local scopes = templates_in(limiting.setting)
  limiting.templates, limiting.by_key = {}, {}
  for n, text in ipairs(#scopes > 0 and redis.call('HMGET', limits, unpack(scopes)) or {}) do
    local one = read_limit(text)
    if one then
      one.scope, one.prefix = scopes[n], prefix_of(scopes[n])
      table.insert(limiting.templates, one)
    end
  end
end

local function read_key(running, gates, key)
  for _, template in ipairs(limiting.templates) do
    if template.places > 0 and begins(key, template.prefix) then
      local number = key_number(key)
      local one = setmetatable({number = number, place = key_place(number, '', template.reason), key = true,
        row = template.number, used = redis.call('ZCOUNT', running, number, number + 1)}, {__index = template})
      one.line = limiting.gated and not limiting.emptied[number] and redis.call('ZSCORE', gates, string.format('%.0f', number))
      one.lined = one.line
      limits_left, limiting.known['key:' .. key] = limits_left - 1, one
      return one
    end
  end
  return false
end

-- Returns the limit of the key of a message with these attributes; false or nil if it has none.
local function limit_of_key(limits, running, gates, text)
  local key = limiting.setting and key_in(text)
  if not key then return nil end
  if not limiting.templates then read_templates(limits) end
  local one = limiting.by_key[key]
  if one == nil then
    one = read_key(running, gates, key)
    limiting.by_key[key] = one
  end
  return one
end

-- Returns the limit that a message has to wait for, if there is one; else notes those that it starts under.
local function judge(limits, gates, running, from, n, id)
  local line, text = from.limit, from.texts[n]
  local name = line and not line.key and line or limit_of_message(limits, gates, running, from.texts, n)
  local key = limit_of_key(limits, running, gates, text)
  if key and key ~= line and key.used > 0 then
    local place = redis.call('ZSCORE', running, ' ' .. id)
    if place and place - place % 2 == key.number then key = nil end -- it has its place
  end
  if key and key ~= line and (key.line or not may_start(key)) then return key end
  if name and name ~= line and (name.line or not may_start(name)) then
    if key then start_under(key, id) end
    return name
  end
  limiting.begins_name, limiting.begins_key = name, key
end

-- Counts the start of a message that was judged last.
local function start(id)
  if limiting.begins_name then start_under(limiting.begins_name, id) end
  if limiting.begins_key then start_under(limiting.begins_key, id) end
end

-- Returns the template that a line belonged to before it was removed; nil while it counts. Then each line of a key has a
-- gate of its own.
local function removed_template(limits, number)
  if not limiting.templates then read_templates(limits) end
  for _, template in ipairs(limiting.templates) do
    if template.number == number then return template.places == 0 and template.scope or nil end
  end
  return number
end

-- Returns how many wait in a line, stale entries of a key included.
local function length_of_line(throttled, key_lines, number)
  if number >= first_key then return redis.call('ZLEXCOUNT', key_lines, key_line_of(number)) end
  return redis.call('ZCOUNT', throttled, line_of(number))
end
