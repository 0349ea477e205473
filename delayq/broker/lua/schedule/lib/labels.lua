-- The labels of a schedule are in its definition, as a list of texts. The index has a member "label name" for each.

-- Returns the labels in a stored definition (false for none).
local function labels_of(spec)
  local list = spec and string.match(spec, '^[^\n]*"labels":%[([^%]\n]*)%]') or ''
  return string.gmatch(list, '"([^"]+)"')
end

-- Brings the index up to date with a schedule whose definition was replaced (false for none before, or from now on).
local function index_labels(schedule_labels, name, before, after)
  for label in labels_of(before) do redis.call('ZREM', schedule_labels, label .. ' ' .. name) end
  for label in labels_of(after) do redis.call('ZADD', schedule_labels, 0, label .. ' ' .. name) end
end
