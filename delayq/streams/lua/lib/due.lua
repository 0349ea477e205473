-- What is due, in the order of its ranks.
local function due_of(found)
  local ids, times = {}, {}
  for i = 1, #found, 2 do ids[#ids + 1], times[found[i]] = found[i], time_of(found[i + 1]) end
  return ids, times
end

-- Sorts ids by their ranks, those of the same rank by their due times; `texts` are the attributes of each.
local function sort_by_rank(ids, times, texts, step)
  local ranks = {}
  for n, id in ipairs(ids) do ranks[id] = {tonumber(rank_of(texts[n], times[id], step) or times[id]), n} end
  table.sort(ids, function(a, b)
    return ranks[a][1] < ranks[b][1] or ranks[a][1] == ranks[b][1] and ranks[a][2] < ranks[b][2]
  end)
end

-- Adds the entries of a source, or of two by rank, until enough were added. Skips stale ones, whose ids have moved elsewhere.
local function take(one, other, deliveries, attributes, limit, is_full, add)
  while not is_full() do
    local from, at, last = first_run(one, other, deliveries, attributes, limit)
    if not from then return end
    for n = at, last do
      if is_full() then return end
      local id = from.found[n]
      local is, due, attempt = read_in(from.state, from.records[n], 0)
      local stale = is ~= from.state or seen[id]
      from.scanned, from.stale = from.scanned + 1, from.stale + (stale and 1 or 0)
      if not stale then
        add(id, due, attempt)
        seen[id] = true
      end
    end
  end
end
