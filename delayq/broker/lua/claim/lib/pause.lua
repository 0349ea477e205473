-- Returns when the pause in force ends (ms, 0 for no end), false or nil if there is none. The setting is "until reason".
local function pause_end(setting, now)
  local ends = setting and whole(string.match(setting, '^%d+'))
  return ends and (ends == 0 or ends > now) and ends
end
