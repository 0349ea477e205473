-- What is due: its order by rank, and the end of the sources that a relay has taken it from.
local function due_of(found)
  local ids, times = {}, {}
  for i = 1, #found, 2 do ids[#ids + 1], times[found[i]] = found[i], string.format('%.0f', found[i + 1]) end
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

-- Removes what was taken or skipped.
local function cut(in_ready, in_ranked, in_retry)
  if in_ready.scanned > 0 then redis.call('LTRIM', in_ready.key, in_ready.scanned, -1) end
  if in_ranked.scanned > 0 then redis.call('ZREMRANGEBYRANK', in_ranked.key, 0, in_ranked.scanned - 1) end
  if in_retry.scanned > 0 then redis.call('LTRIM', in_retry.key, in_retry.scanned, -1) end
end
