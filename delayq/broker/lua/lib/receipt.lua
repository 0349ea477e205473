-- Receipts: the first one of a life settles its message, even after its lease has expired, until it is to be collected.
local function wins(state, first, last, token)
  return state and state ~= 'garbage' and first ~= '0'
    and tonumber(first) <= tonumber(token) and tonumber(token) <= tonumber(last)
end
