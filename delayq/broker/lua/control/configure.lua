-- Sets the options that all processes of a queue share: its event log, its dedupe window, the limits of its dead letter,
-- the head start of a priority, the objective for lateness, and what inspectors do not see.
-- KEYS: events stream, done zset, meta hash
-- ARGV: now (ms or ''), max_len (entries the log keeps, cut to it by up to 10,000; 0 for off, '' to leave it),
--   window (ms to remember settled ids; 0 for off, '' to leave it), max_ids (to remember; '' to leave it),
--   default_max_ids (if there is none to leave),
--   dead_max (entries of the dead letter; '' to leave it), dead_ttl (ms to keep one; '' to leave it), priority_step
--   (ms; '' to leave it), lateness_slo ("99% within 1s"; 'off' for none, '' to leave it), redact (JSON list of paths;
--   '[]' for none, '' to leave it)
-- Returns: 1
-- Re-run: does the same again.
-- Uses: clock, lasting
local events, done, meta = unpack(KEYS)
local override, max_len, window, max_ids, default_max_ids, dead_max, dead_ttl, priority_step, lateness_slo, redact =
  unpack(ARGV)

-- Ids without gaps need Redis 7 and a log that began with them. A log that began with time ids keeps those.
local function dense()
  local info = redis.pcall('XINFO', 'STREAM', events)
  if info.err then -- the stream does not exist, and this does not create it
    local tried = redis.pcall('XADD', events, 'NOMKSTREAM', '0-*', 'kind', 'none')
    return type(tried) ~= 'table' or not tried.err
  end
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return string.match(info[i + 1], '^0%-') end
  end
end

-- Checks the type with a command that the access rights of producers and consumers do not include: only an admin may
-- set what all processes share.
redis.call('HVALS', meta)
if window ~= '' and window ~= '0' then redis.call('ZCARD', done) end
redis.call('HDEL', meta, '') -- deletes nothing: a full Redis refuses a script whose first write adds data
if max_len == '0' then
  redis.call('HDEL', meta, 'events')
elseif max_len ~= '' then
  redis.call('HSET', meta, 'events', (dense() and '0-* ' or '* ') .. max_len)
  redis.pcall('XTRIM', events, 'MAXLEN', '~', max_len) -- at once: a full Redis may never take the entry that would cut it
end
if window == '0' then
  redis.call('HDEL', meta, 'dedupe')
  if redis.call('HEXISTS', meta, 'unique') == 0 then redis.call('UNLINK', done) end -- else ids have ends of their own
elseif window ~= '' then
  if max_ids == '' then
    max_ids = string.match(redis.call('HGET', meta, 'dedupe') or '', '%d+$') or default_max_ids
  end
  redis.call('HSET', meta, 'dedupe', window .. ' ' .. max_ids)
  let_all_last(math.floor(clock(override) / 1000), tonumber(window), done, nil) -- the window may be longer than before
end
if dead_max ~= '' then redis.call('HSET', meta, 'dead_max', dead_max) end
if dead_ttl ~= '' then redis.call('HSET', meta, 'dead_ttl', dead_ttl) end
if priority_step ~= '' then redis.call('HSET', meta, 'priority_step', priority_step) end
if lateness_slo == 'off' then
  redis.call('HDEL', meta, 'lateness_slo')
elseif lateness_slo ~= '' then
  redis.call('HSET', meta, 'lateness_slo', lateness_slo)
end
if redact == '[]' then
  redis.call('HDEL', meta, 'redact')
elseif redact ~= '' then
  redis.call('HSET', meta, 'redact', redact)
end
return 1
