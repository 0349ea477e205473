-- Numbers as they are stored: another program may have written anything in their place.

-- Returns a whole number; nil for what is none, or larger than delayq writes any.
local function whole(text)
  if not text or #text > 16 or string.find(text, '%D') then return nil end
  local number = tonumber(text)
  return number and number < 9e15 and number or nil
end

-- Returns a score as a time (ms, a text), rounded up: that of another program may have a fraction, or be infinite.
local function time_of(score)
  if #score < 16 and not string.find(score, '%D') then return score end
  return string.format('%.0f', math.max(0, math.min(math.ceil(score), 7258118399999)))
end

-- Returns a counter with a number added, as a text; one that is no number starts anew.
local function sum(counter, added)
  return string.format('%.0f', (whole(counter) or 0) + added)
end

-- Adds to a counter of meta. One that is no number starts anew: nothing may stop a script that has begun to write.
local function increase(meta, counter, by)
  local sum = redis.pcall('HINCRBY', meta, counter, by)
  if type(sum) ~= 'table' then return sum end
  redis.call('HSET', meta, counter, math.max(by, 0))
  return math.max(by, 0)
end
