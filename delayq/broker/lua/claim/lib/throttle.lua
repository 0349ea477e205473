-- Claims under limits: which messages may start. `limiting`, of `sources`, is what a claim knows of the limits; nothing is
-- written before `settle_limits`.

-- Looks at the types of what limits write, for a claim whose first token is given; returns whether the queue has limits.
local function look_at_limits(limits, gates, throttled, running, key_lines, flag, time, token)
  if not flag then return false end
  local count = redis.call('HLEN', limits)
  local open = redis.call('ZCARD', gates)
  redis.call('ZCARD', throttled)
  redis.call('ZCARD', running)
  limiting = {time = time, token = token, stored = {}, by_text = {}, gates = {}, known = {}, over = {}, ids = {}, scores = {},
    records = {}, gone = {}, places = {}, emptied = {}, trials = {}, lines = {}, unlined = {}, none = count == 0, gated = open > 0}
  if string.find(flag, ' ', 1, true) then
    redis.call('ZCARD', key_lines)
    limiting.setting = flag
  end
  return true
end

-- Returns whether a message may start now. All but the places and the next start is worked out once: it stays the same
-- during a claim, unless the breaker of the limit has tripped.
local function may_start(one)
  if not one.latest or one.trial_pause > 0 then
    local interval, burst = pace_of(one, limiting.time)
    local closed = one.paused == 0 or math.max(one.held, one.paused or 0, one.trial_at) * 1000 > limiting.time
    one.latest = closed and -math.huge or interval == 0 and math.huge or limiting.time + (burst - 1) * interval
    one.pace = interval
  end
  return one.next_start <= one.latest and (one.places == 0 or one.used < one.places)
end

-- Returns how many payloads of a source to read in a command: one where others have to wait, whose are not needed.
local function payloads_at_once(source)
  return limiting and not source.limit and #limiting.ids > 0 and 1 or 16
end

-- Notes that this claim starts something under a rate; see `limit` for what is given back of it.
local function note_claim(one, interval)
  local ahead = math.max(one.next_start - limiting.time, 0)
  one.spare = one.since < one.last and math.min(one.spare, ahead) or ahead
  if one.last == 0 or one.spare < interval then one.since, one.spare = limiting.token, 0 end
  one.last = limiting.token
end

-- Counts a start of an id; it is a trial if the breaker of the limit has tripped.
local function start_under(one, id)
  if one.trial_pause > 0 then
    trip(one, limiting.time, one.trial_pause, one.trials - 1)
    one.changed, limiting.trials[#limiting.trials + 1] = true, ' ;' .. id .. ' ' .. one.scope
  end
  local interval, next_start, time = one.pace or pace_of(one, limiting.time), one.next_start, limiting.time
  if interval > 0 then
    if one.last ~= limiting.token then note_claim(one, interval) end
    one.next_start, one.changed = (next_start > time and next_start or time) + interval, true
  end
  one.used = one.used + 1
  if one.number > 0 and one.places > 0 then
    local places, n = limiting.places, #limiting.places
    places[n + 1], places[n + 2] = one.place, one.key and ' ' .. id or id
  end
end

-- Returns how many of a number may start now.
local function starts_of(one, most)
  local next_start, used, interval, count = one.next_start, one.used, pace_of(one, limiting.time), 0
  if one.trial_pause > 0 then most = math.min(most, 1) end
  while count < most and may_start(one) do
    one.next_start, one.used = math.max(one.next_start, limiting.time) + interval, one.used + 1
    count = count + 1
  end
  one.next_start, one.used = next_start, used
  return count
end

-- Returns how many may start under the limit of the queue, if as many are wanted. Its places are counted from what is
-- leased: it needs no line, since what it holds back holds up only what it holds back as well.
local function room(limits, running, unack, meta, wanted)
  local one = limit_of_queue(limits, running)
  if not one then return wanted end
  if one.places > 0 then one.used = redis.call('ZCARD', unack) - (whole(redis.call('HGET', meta, 'backoffs')) or 0) end
  return starts_of(one, wanted)
end

-- Lets a message wait in the line of its limit, in the order of ranks.
local function throttle(one, id, rank, due, attempts, first, token, holder)
  local n = #limiting.ids + 1
  local order = math.min(math.max(rank - epoch, 0), span - 1)
  one.line, one.joined, limiting.ids[n] = true, true, id -- also if this claim takes all that waited there before
  limiting.scores[2 * n - 1], limiting.scores[2 * n] = string.format('%.0f', (one.row or one.number) * span + order), id
  limiting.records[2 * n - 1], limiting.records[2 * n] = id, write('throttled', due, attempts, first, token, holder)
  if one.key then
    limiting.lines[#limiting.lines + 1], limiting.lines[#limiting.lines + 2] = 0, key_entry(one.number, order, id)
  end
end
