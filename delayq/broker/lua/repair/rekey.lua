-- Replaces stored texts by the same ones under another key, each only if it is still the one that the caller has read:
-- payloads of messages that nobody processes, successors, dead messages, schedules. A schedule gets a new revision, so
-- that nobody stores or fires what was read before.
-- KEYS: messages hash, deliveries hash, successors hash, dead_messages hash, schedule_specs hash, schedule_states hash,
--   gathered hash, meta hash
-- ARGV: slot, sequence, now (ms or ''), part (the hash), then per text: id (or entry, or schedule), before, after
-- Returns: a status for each of the first texts: 1 replaced, 2 the message is being processed, 0 changed or gone
-- Re-run: returns the same reply.
-- Uses: bytes, clock, numbers, once, record, schedule
local messages, deliveries, successors, dead_messages, schedule_specs, schedule_states, gathered, meta = unpack(KEYS)
local slot, sequence, override, part = unpack(ARGV, 1, 4)
local past = answered(meta, slot, sequence)
if past then return past end

local time = clock(override)
local now = math.floor(time / 1000)
local hashes = {messages = messages, successors = successors, dead_messages = dead_messages,
  schedule_specs = schedule_specs, gathered = gathered}
redis.call('HVALS', meta) -- the rights of producers and consumers do not include this command: see `configure`
for _, hash in ipairs({messages, deliveries, successors, dead_messages, schedule_specs, schedule_states, gathered}) do
  redis.call('HLEN', hash)
end
local statuses, replaced, states, seen = {}, {}, {}, {}
for i = 5, #ARGV, 3 do
  if bytes_left <= 0 then break end
  local id, before, after = unpack(ARGV, i, i + 2)
  local status = '0'
  if not seen[id] and read_payload(hashes[part], id) == before then
    status, seen[id] = '1', true
    if part == 'messages' and read(redis.call('HGET', deliveries, id) or '') == 'leased' then
      status = '2'
    else
      replaced[#replaced + 1], replaced[#replaced + 2] = id, after
      if part == 'schedule_specs' then
        local revision, fired, last, paused = state_of(schedule_states, id)
        if revision ~= '0' then
          states[#states + 1], states[#states + 2] = id, as_state(next_revision(revision, time), fired, last, paused)
        end
      end
    end
  end
  statuses[#statuses + 1] = status
end
begin(meta, slot)
if #replaced > 0 then redis.call('HSET', hashes[part], unpack(replaced)) end
if #states > 0 then redis.call('HSET', schedule_states, unpack(states)) end
return remember(meta, slot, sequence, now, table.concat(statuses))
