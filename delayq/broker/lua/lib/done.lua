-- Ids of messages that have ended, held so that sending them again is refused: for the dedupe window of their queue, or
-- longer if a send asks for it. A score is when a message ended (ms), from which the window counts, also one that changes
-- later. For an id that is held longer it is the end of that (ms) plus a half.

-- The dedupe window (ms) and how many ids it holds, 0 while it is off; and whether sends have asked to hold their ids.
local window, max_ids, some_ask, holds = 0, 0, false, false
-- What is to be stored, collected first.
local scores, last_held = {}, 0

-- Looks up the slot of the call, and how ids are held. Returns the reply of a call that is not to be executed, see
-- `past_of`; else nil, then the settings of the event log and of the limits, false for each that is off, and between them
-- the schema; then how many messages have been sent.
local function begun(meta, done, slot, sequence)
  local settings = redis.call('HMGET', meta, 'events', 'dedupe', 'schema', 'unique', 'limited', 'sent', slot)
  local past = past_of(settings[7], sequence)
  if past then return past end
  -- What is no setting of a window, written by another program, counts as none.
  local span, most = string.match(settings[2] or '', '^(%d+) (%d+)')
  if whole(span) and whole(most) then window, max_ids = whole(span), whole(most) end
  some_ask = settings[4]
  holds = some_ask or window > 0
  if holds then redis.call('ZCARD', done) end
  return nil, settings[1], settings[3], settings[5], settings[6]
end

-- Returns until when (ms) an id with this score is held.
local function held_until(score)
  return math.min(score % 1 > 0 and math.floor(score) or score + window, 7258118399999)
end

-- Returns for each id whether it is held.
local function settled(done, now, ids)
  local found = {}
  for n, score in ipairs(holds and redis.call('ZMSCORE', done, unpack(ids)) or {}) do
    found[n] = score and held_until(score) > now
  end
  return found
end

-- Notes that an id is held until a time, or for the window from the end of its message, whichever is later. The message
-- of a send has no end yet.
local function note_held(id, ended, ends)
  local score = string.format('%.0f.5', ends)
  if ended and ends <= ended + window then
    if window == 0 then return end
    score, ends = string.format('%.0f', ended), ended + window
  end
  scores[#scores + 1], scores[#scores + 2], last_held = score, id, math.max(last_held, ends)
end

-- Stores what is noted.
local function hold(done, now)
  if #scores == 0 then return end
  redis.call('ZADD', done, unpack(scores))
  let_last(last_held, now, window, done, nil)
end

-- Deletes the oldest ids, those outside the window or above the maximum, up to a limit. The maximum does not count ids
-- that are held longer, before their ends.
local function forget(done, now, limit)
  local old = redis.call('ZCOUNT', done, '-inf', string.format('%.0f', now - window))
  local past = some_ask and redis.call('ZCOUNT', done, '-inf', now) or redis.call('ZCARD', done)
  local excess = math.min(math.max(old, past - max_ids), limit)
  if excess > 0 then redis.call('ZREMRANGEBYRANK', done, 0, excess - 1) end
end

-- Deletes old ids as `forget` does, and lets the others last.
local function tidy(done, now, limit)
  if not holds then return end
  forget(done, now, limit)
  let_all_last(now, window, done, nil)
end

-- Holds ids of messages that end now, and deletes up to twice as many old ones: the set shrinks as it is used. The
-- attributes, by id, may say for how long.
local function settle(done, now, ids, texts)
  if not holds then return end
  local before = some_ask and redis.call('ZMSCORE', done, unpack(ids)) or {}
  for n, id in ipairs(ids) do
    local ends = now + (whole(string.match(texts[id] or '', 'unique_after=(%d+)')) or 0)
    note_held(id, now, before[n] and math.max(ends, held_until(before[n])) or ends)
  end
  hold(done, now)
  forget(done, now, 2 * #ids)
end
