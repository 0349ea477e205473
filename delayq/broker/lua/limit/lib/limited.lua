-- Sets `limited` in meta: "running" if any limit says how many may run, "starts" if there are others. Once there is a
-- template, "running" and the templates follow: "running account:* user:*". A space is left of them while messages may have
-- places of keys.
local function note_limited(limits, meta)
  local before, limited, templates = redis.call('HGET', meta, 'limited') or '', false, {}
  local stored = redis.call('HGETALL', limits)
  for n = 2, #stored, 2 do
    if tonumber(string.match(stored[n], '^%d+ %S+ %d+ (%d+)') or 0) > 0 then limited = 'running' end
    limited, templates[#templates + 1] = limited or 'starts', string.match(stored[n - 1], '^key:(%S*%*)$')
  end
  if #templates > 0 or string.find(before, ' ', 1, true) then limited = 'running ' .. table.concat(templates, ' ') end
  if limited then redis.call('HSET', meta, 'limited', limited) else redis.call('HDEL', meta, 'limited') end
  return limited
end
