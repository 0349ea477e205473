-- Limits of the queue and of names. One is stored as "number interval burst places held paused next spread spread_until
-- reason": its number, 0 for that of the queue; microseconds between two starts, 0 for no rate; starts at once; how many
-- may run, 0 for any number; until when a callback has closed it (ms); the end of its pause (ms, 0 for no end, - if there
-- is none); when the next start falls if all keep their distance (us); a wider distance, and until when it counts (ms).
-- While its breaker has tripped, "/at/pause/trials" follows `held`: when the next may start as a trial (ms), how long after
-- it another one may (ms), and how many may so until all may. One without a pause has not tripped.
-- Once something has started under a rate, "/since/last/spare" follows `next`: the first tokens of two claims, and
-- microseconds. A start counts for nothing any more if it is given back before another claim has started anything under
-- the limit: if its token is not below `last`, the first token of the latest such claim. An earlier one, down to `since`, had
-- others behind it, which have used a part of the time that it took: all together get back `spare` at most, the least
-- by which `next` was ahead of the clock in these claims. One from before `since` gets back nothing.
-- A message that waits has a score: the number of its limit, then its rank (see `rank`) in 40 bits.
local span, epoch = 1099511627776, 1600000000000

local function read_limit(text)
  local number, interval, burst, places, held, breaker, paused, next_start, claims, spread, spread_until, reason =
    string.match(text or '', '^(%d+) ([%d.]+) (%d+) (%d+) (%d+)(%S*) (%S+) ([%d.]+)(%S*) ([%d.]+) (%d+) ?(.*)$')
  local trial_at, trial_pause, trials = string.match(breaker or '', '^/(%d+)/(%d+)/(%d+)$')
  local since, last, spare = string.match(claims or '', '^/(%d+)/(%d+)/([%d.]+)$')
  local numbers = number and string.sub(text, 1, #text - #reason)
  if not number or string.find(numbers, '%.%d*%.') then return nil end
  for digits in string.gmatch(numbers, '%d+') do -- a pattern of 19 takes ten times as long
    if #digits > 18 then return nil end
  end
  return {number = tonumber(number), interval = tonumber(interval), burst = tonumber(burst),
    places = tonumber(places), held = tonumber(held), paused = paused ~= '-' and tonumber(paused),
    next_start = tonumber(next_start), spread = tonumber(spread), spread_until = tonumber(spread_until),
    reason = reason, used = 0, trial_at = tonumber(trial_at or 0), trial_pause = tonumber(trial_pause or 0),
    trials = tonumber(trials or 0), since = tonumber(since or 0), last = tonumber(last or 0), spare = tonumber(spare or 0)}
end

local function limit_text(one)
  local breaker = string.format('/%.0f/%.0f/%.0f', one.trial_at, one.trial_pause, one.trials)
  local claims = one.last > 0 and string.format('/%.0f/%.0f/%.2f', one.since, one.last, one.spare) or ''
  return string.format('%.0f %.3f %.0f %.0f %.0f%s %s %.2f%s %.3f %.0f %s', one.number, one.interval, one.burst, one.places,
    one.held, one.trial_pause > 0 and breaker or '', one.paused and string.format('%.0f', one.paused) or '-',
    one.next_start, claims, one.spread, one.spread_until, one.reason)
end

-- Trips the breaker of a limit: after each pause (ms) one may start, so many in all; or ends that if the pause is 0.
local function trip(one, time, pause, trials)
  one.trial_at, one.trial_pause, one.trials = time / 1000 + pause, pause, trials
end

-- Lets no start be given back that was made until now.
local function keep_starts(one)
  one.since, one.last, one.spare = 0, 0, 0
end

-- Returns the distance of starts at a time (us), and how many may start at once.
local function pace_of(one, time)
  if one.spread > one.interval and one.spread_until * 1000 > time then return one.spread, 1 end
  return one.interval, one.burst
end

-- Returns when the next message may start (us): math.huge if something must happen first.
local function opens_at(one, time)
  if one.paused == 0 or one.places > 0 and one.used >= one.places then return math.huge end
  local interval, burst = pace_of(one, time)
  local at = math.max(one.held, one.paused or 0, one.trial_at) * 1000
  return interval == 0 and at or math.max(at, one.next_start - (burst - 1) * interval)
end

-- Brings the next start nearer if it is further ahead than starts can have moved it: the clock was set back, or the limit
-- was changed. So it does with the next trial, and ends a breaker that lets all start again. Returns whether it was.
local function bring_near(one, time)
  local interval, burst = pace_of(one, time)
  local latest, latest_trial = time + burst * interval, time / 1000 + one.trial_pause
  local ends = one.trial_pause > 0 and one.trials == 0 and one.trial_at * 1000 <= time
  local is_late, is_trial_late = interval > 0 and one.next_start > latest, one.trial_at > latest_trial
  if is_late then
    one.next_start = latest
    keep_starts(one)
  end
  if is_trial_late then one.trial_at = latest_trial end
  if ends then one.trial_pause = 0 end
  return is_late or is_trial_late or ends
end

-- Returns whether a limit holds back nothing any more, whatever starts.
local function is_over(one, time)
  local closed = one.paused and (one.paused == 0 or one.paused * 1000 > time) or one.held * 1000 > time
  return not closed and one.trial_pause == 0 and one.places == 0 and pace_of(one, time) == 0
end

local function gate_time(at)
  return at == math.huge and '+inf' or string.format('%.0f', math.ceil(at / 1000))
end

local function line_of(number)
  local low = number * span
  return string.format('%.0f', low), string.format('(%.0f', low + span)
end
