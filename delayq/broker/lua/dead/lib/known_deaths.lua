-- What the dead letter has of an id, as far as a script has looked, with what it is about to add.
local known_deaths = {}

local function add_known_entry(found, token, died, counts)
  found.tokens[#found.tokens + 1], found.died[token], found.counts[token] = token, died or 0, counts
  if not died then return end
  local number = tonumber(token) / 1000 -- which imports make of the time of death, or of that when they run
  found.times[died] = true
  if number == died or number == died - 1 then found.imported[died], found.last = true, math.max(found.last, died) end
end

-- Returns the entries of an id: their tokens, the time of death by token, which times there are, and which are of entries
-- that were imported, with the last.
local function entries_of(dead, dead_ids, id)
  if not known_deaths[id] then
    local found = {tokens = {}, died = {}, counts = {}, times = {}, imported = {}, last = 0}
    for token in string.gmatch(redis.call('HGET', dead_ids, id) or '', '%d+') do
      add_known_entry(found, token, tonumber(redis.call('ZSCORE', dead, id .. ':' .. token)))
    end
    known_deaths[id] = found
  end
  return known_deaths[id]
end

-- Returns whether the life of a message has ended in one of the entries of its id. One that was about to die when it was
-- exported has no time of death: it is told by its attempts and due time, and its entry by its token.
local function has_life(dead_messages, id, has_time, attempts, due)
  local found = known_deaths[id]
  for _, token in ipairs(found.tokens) do
    if not has_time or tonumber(token) == (found.died[token] - 1) * 1000 then
      local counts = found.counts[token] or bytes_left > 0 and read_payload(dead_messages, id .. ':' .. token) or ''
      local ended_attempts, ended_due = string.match(counts, '^(%d+) %d+ (%d+) ')
      if ended_attempts == attempts and (due == '' or ended_due == due) then return true end
    end
  end
end
