-- A delivery record names the one location of a message: state, due (ms), attempts, first token of this life, last
-- token, consumer. All fields are text: Lua's tostring would round tokens.
local function read(record)
  local state, due, attempts, first, token, consumer =
    string.match(record, '^(%a+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not state or #due > 15 or #attempts > 9 or #first > 16 or #token > 16 then return nil end
  return state, due, attempts, first, token, consumer
end

-- Returns the same of a message that was found in a state. A record that cannot be read, written by another program,
-- counts as that of a message which was never delivered, and due at this time (ms).
local function read_in(state, record, due)
  local is, known_due, attempts, first, token, consumer = read(record or '')
  if is or not record then return is, known_due, attempts, first, token, consumer end
  return state, string.format('%.0f', due), '0', '0', '0', '-'
end

local function write(state, due, attempts, first, token, consumer)
  return state .. ' ' .. due .. ' ' .. attempts .. ' ' .. first .. ' ' .. token .. ' ' .. consumer
end
