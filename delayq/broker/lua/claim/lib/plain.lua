-- Plain queues: they use nothing that one of these fields of `meta` stands for, which every version sets before the first
-- of it, or with it: the event log, a dedupe window, reserved ids, limits and priorities.
local SPECIAL = {'events', 'dedupe', 'unique', 'limited', 'priority_step'}

-- Returns whether any of these fields is set, which stand in a reply after others.
local function is_special(fields, after)
  return fields[after + 1] or fields[after + 2] or fields[after + 3] or fields[after + 4] or fields[after + 5]
end

-- Notes the hashes of headers and attributes, if any message has some. Returns whether any of the last four keys exists,
-- whether any message has failed, and whether any count of retries is stored. Most queues have none of these keys, and
-- then this takes one command.
local function look_at_rest(schema, retries, headers, attributes, errors, ready, retry, schedules, successors)
  local stores_all = stores_default(schema)
  local existing = stores_all and redis.call('EXISTS', headers, attributes, errors, ready, retry, schedules, successors)
    or redis.call('EXISTS', headers, attributes, errors, ready, retry, schedules, successors, retries)
  if existing == 0 then return false, false, stores_all end
  headed, attributed = redis.call('HLEN', headers) > 0 and headers, redis.call('HLEN', attributes) > 0
  local failed, counted = redis.call('HLEN', errors) > 0, stores_all or redis.call('HLEN', retries) > 0
  existing = existing - (headed and 1 or 0) - (attributed and 1 or 0) - (failed and 1 or 0)
  return existing > (counted and not stores_all and 1 or 0), failed, counted
end

-- Returns what becomes of receipts, given by their tokens, whose ids have these records: a text with a status for each,
-- see `turn`, then the ids that end, as an array and as a set.
local function settled_by(tokens_told, asked, stored)
  local statuses, done, ended = {}, {}, {}
  for n, token in ipairs(tokens_told) do
    local id, state, _, _, first, last = asked[n], read(stored[n] or '')
    local won = not ended[id] and wins(state, first, last, token)
    statuses[n] = not won and '0' or state == 'leased' and '1' or '?'
    if statuses[n] == '1' then ended[id], done[#done + 1] = true, id end
  end
  return table.concat(statuses), done, ended
end
