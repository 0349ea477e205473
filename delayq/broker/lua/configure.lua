-- Switches what all processes share of a queue: its event log and its dedupe window.
-- KEYS: events stream, done zset, meta hash
-- ARGV: max_len (entries the log keeps; 0 for off, '' to leave it), window (ms to remember settled ids; 0 for off, '' to
--   leave it), most (ids to remember)
-- Returns: 1
-- Re-run: does the same again.
local events, done, meta = unpack(KEYS)
local max_len, window, most = unpack(ARGV)

-- Dense ids need Redis 7, and a log that began with them; one that began with time ids goes on with those.
local function dense()
  local info = redis.pcall('XINFO', 'STREAM', events)
  if info.err then -- there is none yet, and this makes none
    local tried = redis.pcall('XADD', events, 'NOMKSTREAM', '0-*', 'kind', 'none')
    return type(tried) ~= 'table' or not tried.err
  end
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return string.match(info[i + 1], '^0%-') end
  end
end

-- A look at the type with a command that neither a producer's nor a consumer's access rights include: what all share is
-- switched by an admin.
redis.call('HSTRLEN', meta, 'events')
if max_len ~= '' and max_len ~= '0' then redis.call('XLEN', events) end
if window ~= '' and window ~= '0' then redis.call('ZCARD', done) end
redis.call('HDEL', meta, '') -- forgets nothing, for no field has this name: a full Redis refuses a first write that adds
if max_len == '0' then
  redis.call('HDEL', meta, 'events')
elseif max_len ~= '' then
  redis.call('HSET', meta, 'events', (dense() and '0-* ' or '* ') .. max_len)
end
if window == '0' then
  redis.call('HDEL', meta, 'dedupe')
  redis.call('UNLINK', done)
elseif window ~= '' then
  redis.call('HSET', meta, 'dedupe', window .. ' ' .. most)
end
return 1
