-- The run ledger: counts of the messages of a bulk send by status, added up by the calls that store them. A record is
-- "state started ended epoch new exists replaced running settled refused", and of a load also "start until source".
local function run_of(runs, run, now)
  local record, fields = redis.call('HGET', runs, run), {}
  if not string.match(record or '', '^%a+ %d+ %d+ %-?%d+ %d+ %d+ %d+ %d+ %d+ %d+') then
    record = string.format('writing %.0f 0 -1 0 0 0 0 0 0', now)
  end
  for field in string.gmatch(record, '%S+') do fields[#fields + 1] = field end
  return fields
end

local function add_up(runs, run, now, statuses)
  local fields = run_of(runs, run, now)
  for n, status in ipairs({'1', '0', '[26]', '3', '5'}) do
    local _, times = string.gsub(statuses, status, '')
    fields[4 + n] = string.format('%.0f', fields[4 + n] + times)
  end
  redis.call('HSET', runs, run, table.concat(fields, ' '))
end
