-- Brings messages of the cold tier back: those of a file in their order, or of no file those that were rescheduled while
-- they were cold. A message that was cancelled meanwhile, whose id lives or is held is left out, and the log tells why.
-- KEYS: pending zset, retries hash, messages hash, headers hash, attributes hash, events stream, done zset, cold hash,
--   cold_changes hash, meta hash, wake list
-- ARGV: slot, sequence, now (ms or ''), file ('' for those that were rescheduled), first (how many of the file are back),
--   then per message: id, due (ms), retries, payload, headers, attributes
-- Returns: a status per message: 1 back, 0 exists, 5 settled, 6 withdrawn, - not rescheduled, or back before; or, of a file of which more
--   or fewer are back, @ and how many, @ alone for one that is not in the tier
-- Re-run: returns the same reply.
-- Uses: clock, numbers, once, schema, lasting, attributed, signal, log, done
local pending, retries, messages, headers, attributes, events, done, cold, cold_changes, meta, wake = unpack(KEYS)
local slot, sequence, override, file, first = unpack(ARGV, 1, 5)
local past, logged, schema = begun(meta, done, slot, sequence)
if past then return past end

local now = math.floor(clock(override) / 1000)
-- Returns why a message is left out, in the log; false if it is not.
local function reason_of(status)
  return status == '0' and 'exists' or status == '5' and 'settled' or status == '6' and 'withdrawn'
end

local rows, position = string.match(file ~= '' and redis.call('HGET', cold, 'file ' .. file) or '', '^(%d+) (%d+)$')
if file ~= '' and position ~= first then
  begin(meta, slot)
  return remember(meta, slot, sequence, now, '@' .. (position or ''))
end

local ids, statuses, seen, back, times, dues, first_due = {}, {}, {}, {}, {}, {}, math.huge
local counts, payloads, header_texts, attribute_texts, taken = {}, {}, {}, {}, {}
local again, again_dues, left, reasons = {}, {}, {}, {}
for i = 6, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
for _, hash in ipairs({retries, headers, attributes, cold}) do redis.call('HLEN', hash) end
local held = settled(done, now, ids)
local known = redis.call('HLEN', cold_changes) > 0 and redis.call('HMGET', cold_changes, unpack(ids)) or {}
for n, id in ipairs(ids) do
  local _, due, retry_count, payload, header_text, text = unpack(ARGV, 6 * n, 6 * n + 5)
  local change = string.match(known[n] or '', '^(%-) ') or string.match(known[n] or '', '^(%d+) ')
  if change and change ~= '-' and not whole(change) then change = nil end -- another program's
  local is_done = string.match(known[n] or '', ' done$')
  local status = (is_done or file == '' and (not change or change == '-')) and '-' or change == '-' and '6'
    or (seen[id] or redis.call('HEXISTS', messages, id) == 1) and '0' or held[n] and '5' or '1'
  statuses[n] = status
  if change and change ~= '-' then
    taken[#taken + 1] = id
    -- It is in its file until that is back: what has become of it is done then, and logged.
    if file == '' then taken[#taken + 1] = string.format('- %.0f done', now) end
  end
  if reason_of(status) then
    left[#left + 1], reasons[#reasons + 1] = id, reason_of(status)
  end
  if status == '1' then
    seen[id], back[#back + 1], times[#times + 1] = true, id, due
    if change then
      due, again[#again + 1], again_dues[#again_dues + 1] = change, id, change
    end
    dues[#dues + 1], dues[#dues + 2], first_due = due, id, math.min(first_due, due)
    if stores_default(schema) or retry_count ~= DEFAULT_RETRIES then
      counts[#counts + 1], counts[#counts + 2] = id, retry_count
    end
    payloads[#payloads + 1], payloads[#payloads + 2] = id, payload
    if header_text ~= '' then header_texts[#header_texts + 1], header_texts[#header_texts + 2] = id, header_text end
    if text ~= '' then
      note_kinds(text)
      attribute_texts[#attribute_texts + 1], attribute_texts[#attribute_texts + 2] = id, text
    end
  end
end
-- Adds before it removes: a full Redis must refuse its first write.
if #back > 0 then
  enter(pending, wake, dues, first_due)
  redis.call('HSET', messages, unpack(payloads))
  if #counts > 0 then redis.call('HSET', retries, unpack(counts)) end
  if #header_texts > 0 then redis.call('HSET', headers, unpack(header_texts)) end
  if #attribute_texts > 0 then
    redis.call('HSET', attributes, unpack(attribute_texts))
    note_attributes(meta)
  end
else
  begin(meta, slot)
end
if #taken > 0 and file == '' then redis.call('HSET', cold_changes, unpack(taken)) end
if #taken > 0 and file ~= '' then redis.call('HDEL', cold_changes, unpack(taken)) end
if file ~= '' then
  local there = position + #ids
  increase(meta, 'cold', -#ids)
  if there < tonumber(rows) then
    redis.call('HSET', cold, 'file ' .. file, string.format('%s %.0f', rows, there))
  else
    redis.call('HDEL', cold, 'file ' .. file)
    redis.call('HSET', cold, 'back ' .. file, '1')
  end
end
local reply = remember(meta, slot, sequence, now, table.concat(statuses))
log(events, meta, logged, 'restored', now, 'ids', back, 'dues', times)
log(events, meta, logged, 'rescheduled', now, 'ids', again, 'dues', again_dues)
log(events, meta, logged, 'cold_dropped', now, 'ids', left, 'reasons', reasons)
return reply
