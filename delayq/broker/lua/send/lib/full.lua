-- Returns the error for a queue that has no room for so many new messages; nil if it has, or has no limit ('0').
local function full(messages, max_length, new_count)
  local length = max_length ~= '0' and new_count > 0 and redis.call('HLEN', messages)
  if length and length + new_count > tonumber(max_length) then
    return redis.error_reply('QUEUEFULL the queue holds ' .. length .. ' of at most ' .. max_length .. ' messages')
  end
end
