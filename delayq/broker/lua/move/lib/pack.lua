-- Packs: what moves to another partition, as cells one after another, each with its length before it.
local packed = {}

-- Adds cells; one that is nil or false is empty.
local function add_cells(...)
  for n = 1, select('#', ...) do
    local cell = select(n, ...) or ''
    packed[#packed + 1] = string.format('%d:', #cell) .. cell
  end
end

-- Returns a function that reads the next cell, nil at the end.
local function cells_of(text)
  local at = 1
  return function()
    local size, first = string.match(text, '^(%d+):()', at)
    if not size then return nil end
    at = first + size
    return string.sub(text, first, at - 1)
  end
end

-- Returns the next cells by their names, which are given as one text.
local function next_named(next_cell, names)
  local one = {}
  for name in string.gmatch(names, '%a+') do one[name] = next_cell() end
  return one
end
