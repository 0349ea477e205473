-- Settled ids, kept so that sending them again is refused: for the dedupe window, whose setting is "window max" (ms;
-- ids), or until an end of their own. A score is when the id was settled (ms), or an end (ms) plus a half.

-- Returns the settings of the event log and of the dedupe window, false for each that is off, and the schema: while it is
-- 1, no message has attributes. Once ids have had ends of their own, the window, which may be 0, is followed by "own".
local function switched(meta, done)
  local settings = redis.call('HMGET', meta, 'events', 'dedupe', 'schema', 'unique', 'limited')
  -- What is no setting of a window, written by another program, counts as none.
  if settings[2] then
    local window, max_ids = string.match(settings[2], '^(%d+) (%d+)')
    if not (whole(window) and whole(max_ids)) then settings[2] = false end
  end
  if settings[4] then settings[2] = (settings[2] or '0 0') .. ' own' end
  if settings[2] then redis.call('ZCARD', done) end
  return settings[1], settings[2], settings[3], settings[5]
end

-- Returns until when (ms) a settled id is held.
local function held_until(score, window)
  return math.min(score % 1 > 0 and math.floor(score) or score + window, 7258118399999)
end

-- Returns for each id whether it is held.
local function settled(done, setting, now, ids)
  local window, found = string.match(setting, '^%d+'), {}
  for n, score in ipairs(redis.call('ZMSCORE', done, unpack(ids))) do
    found[n] = score and held_until(score, window) > now
  end
  return found
end

-- Returns whether ids may have ends of their own, so that `settle` takes the attributes of each.
local function has_ends(setting)
  return setting and string.find(setting, 'own')
end

-- Deletes the oldest ids, those outside the window or above the maximum, up to a limit. The maximum does not count ids
-- whose own ends are still to come.
local function forget(done, setting, now, limit)
  local window, max_ids = string.match(setting, '^(%d+) (%d+)')
  local old = redis.call('ZCOUNT', done, '-inf', string.format('%.0f', now - window))
  local past = has_ends(setting) and redis.call('ZCOUNT', done, '-inf', now) or redis.call('ZCARD', done)
  local excess = math.min(math.max(old, past - max_ids), limit)
  if excess > 0 then redis.call('ZREMRANGEBYRANK', done, 0, excess - 1) end
end

-- Deletes old ids as `forget` does, and lets the others last.
local function tidy(done, setting, now, limit)
  forget(done, setting, now, limit)
  let_all_last(now, tonumber(string.match(setting, '^%d+')), done, nil)
end

-- Adds ids, and deletes up to twice as many old ones: the set shrinks as it is used. The attributes, by id, may say how
-- long an id is held from now.
local function settle(done, setting, now, ids, texts)
  if not setting then return end
  local cells, window, last = {}, tonumber(string.match(setting, '^%d+')), now
  local scores = has_ends(setting) and redis.call('ZMSCORE', done, unpack(ids)) or {}
  for n, id in ipairs(ids) do
    local ends = (whole(string.match(texts[id] or '', 'unique_after=(%d+)')) or 0) + now
    if scores[n] then ends = math.max(ends, held_until(scores[n], window)) end
    last = math.max(last, ends)
    if ends > now + window then
      cells[#cells + 1], cells[#cells + 2] = string.format('%.0f.5', ends), id
    elseif window > 0 then
      cells[#cells + 1], cells[#cells + 2] = string.format('%.0f', now), id
    end
  end
  if #cells > 0 then
    redis.call('ZADD', done, unpack(cells))
    let_last(math.max(last, now + window), now, window, done, nil)
  end
  forget(done, setting, now, 2 * #ids)
end
