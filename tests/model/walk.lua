-- Plants worlds, makes calls in each, and tells what is stored after each of them: many in one round trip.
-- KEYS: every key of the queue, then the index of the remembered answers within what is read
-- ARGV: what to read, then worlds; packed
-- Returns: for each call of each world its answer, what is stored then or nothing where that is as it was planted
--   (remembered answers aside), and whether a re-run answered the same and changed nothing
local reads, worlds = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2])
local replies, scripts = tonumber(ARGV[3]), {}
--SCRIPTS--

local function run(call)
  local known = scripts[call[1]]
  return known.run(known.keys, call[2])
end

-- The first deadline before a turn is not that before it is made again.
local function lasting(call, answer)
  if call[1] == 'turn' and type(answer) == 'table' then answer[4] = '-1' end
  return answer
end

local function read()
  local held = {}
  for n, one in ipairs(reads) do
    held[n] = scripts[one[1]] and run({one[1], one[2]}) or redis.call(unpack(one))
  end
  return held
end

local function forget(meta)
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    if string.find(field, '.', 1, true) then redis.call('HDEL', meta, field) end
  end
end

-- What is stored, remembered answers aside, as one text.
local function seal(held)
  local remembered = held[replies]
  held[replies] = false
  local text = cmsgpack.pack(held)
  held[replies] = remembered
  return text
end

local told = {}
for _, world in ipairs(worlds) do
  local commands, answers, calls = unpack(world)
  local planted, changed = nil, true
  for _, call in ipairs(calls) do
    if changed then
      redis.call('DEL', unpack(KEYS))
      for _, command in ipairs(commands) do redis.call(unpack(command)) end
      planted = planted or seal(read())
    else
      forget(answers[2])
    end
    redis.call(unpack(answers))
    local whole, answer = pcall(run, call)
    answer = whole and lasting(call, answer) or answer
    if whole then
      local held = read()
      changed = seal(held) ~= planted
      local again = lasting(call, run(call))
      local same = cmsgpack.pack(answer) == cmsgpack.pack(again) and cmsgpack.pack(held) == cmsgpack.pack(read())
      told[#told + 1] = {answer, changed and held, held[replies], same and 1 or 0}
    else
      changed = true
      told[#told + 1] = {type(answer) == 'table' and answer.err or tostring(answer)}
    end
  end
end
return told
