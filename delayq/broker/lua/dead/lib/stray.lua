-- Entries of no group: those that were cancelled, purged or replaced leave theirs behind, and each collection deletes some.
local function look_at_gathered(gathered, schema)
  return (schema == '6' or schema == '7' or schema == '8') and redis.call('HLEN', gathered) > 0
end

-- Deletes up to a thousand, as long as a few that are drawn have some.
local function delete_stray(gathered, attributes, successors)
  for _ = 1, 50 do
    local stray = {}
    for _, field in ipairs(redis.call('HRANDFIELD', gathered, 20)) do
      local id, series, number = string.match(field, '^(.*)\n(%d+)\n(%d+)$')
      local one = id and (group_of(read_payload(attributes, id)) or group_of(attributes_in(read_payload(successors, id))))
      local live = one and one.series == series and number - one.first >= 0 and number - one.first < one.count
      if not live then stray[#stray + 1] = field end
    end
    if #stray > 0 then redis.call('HDEL', gathered, unpack(stray)) end
    if #stray == 0 or bytes_left <= 0 then return end
  end
end
