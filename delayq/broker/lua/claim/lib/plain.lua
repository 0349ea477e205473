-- Plain queues: they use nothing that one of these fields of `meta` stands for, which every version sets before the first
-- of it, or with it: the event log, a dedupe window, reserved ids, limits and priorities.
local SPECIAL = {'events', 'dedupe', 'unique', 'limited', 'priority_step'}

-- Returns whether any of these fields is set, which stand in a reply after others.
local function is_special(fields, after)
  return fields[after + 1] or fields[after + 2] or fields[after + 3] or fields[after + 4] or fields[after + 5]
end

-- Returns a counter with a number added, as a text; one that is no number starts anew.
local function sum(counter, added)
  return string.format('%.0f', (whole(counter) or 0) + added)
end

-- Returns what becomes of receipts whose records are these: a text with a status for each, see `turn`, then the ids that
-- end, as an array and as a set.
local function settled_by(receipts, asked, stored)
  local statuses, done, ended = {}, {}, {}
  for n = 1, receipts do
    local id, state, _, _, first, last = asked[n], read(stored[n] or '')
    local won = not ended[id] and wins(state, first, last, ARGV[7 + 2 * n])
    statuses[n] = not won and '0' or state == 'leased' and '1' or '?'
    if statuses[n] == '1' then ended[id], done[#done + 1] = true, id end
  end
  return table.concat(statuses), done, ended
end
