-- Plain queues: they use nothing that is in one of these fields of `meta`, which every version sets before, or with, the
-- first of it: the event log, a dedupe window, reserved ids, limits and priorities. What only those need is in other scripts.
local SPECIAL = {'events', 'dedupe', 'unique', 'limited', 'priority_step'}

-- Returns whether any of these fields is set, which stand in a reply after others.
local function is_special(fields, after)
  return fields[after + 1] or fields[after + 2] or fields[after + 3] or fields[after + 4] or fields[after + 5]
end

-- Returns a counter with a number added, as a text; one that is no number starts anew.
local function sum(counter, added)
  return string.format('%.0f', (whole(counter) or 0) + added)
end
