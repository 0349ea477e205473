-- A delivery record names the one location of a message: state, due (ms), attempts, first token of this life, last
-- token, consumer. All fields are text: Lua's tostring would round tokens.
local function read(record)
  return string.match(record, '^(%a+) (%d+) (%d+) (%d+) (%d+) (.*)$')
end

local function write(state, due, attempts, first, token, consumer)
  return state .. ' ' .. due .. ' ' .. attempts .. ' ' .. first .. ' ' .. token .. ' ' .. consumer
end
